"""Agents and graphs of LangChain and LangGraph."""

from __future__ import annotations

import asyncio
import itertools
import operator
from datetime import timedelta
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

import holdfast
from holdfast.adapters.langgraph import durable
from tests.adapters.readers import reader
from tests.adapters.world import World


def model_of(world: World, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=world.model_url, api_key="any", **options)  # type: ignore[arg-type]


def searching(world: World) -> Any:
    @holdfast.step
    async def note(text: str) -> None:
        await asyncio.to_thread(world.effect, f"note {text}")

    @tool
    async def search(q: str) -> str:
        """Searches."""
        await note(q)
        await asyncio.to_thread(world.effect, f"search {q}")
        return f"found {q}"

    return search


def ask(question: str) -> Any:
    return {"messages": [{"role": "user", "content": question}]}


def agent(world: World) -> tuple[Any, list[Any]]:
    made = durable(create_agent(model_of(world), [searching(world)], name="agent"))

    @holdfast.workflow
    async def asks(question: str) -> list[Any]:
        state = await made.ainvoke(ask(question))
        return [[message.type, message.text] for message in state["messages"]]

    return asks, ["why"]


def streamed(world: World) -> tuple[Any, list[Any]]:
    made: Any = durable(create_agent(model_of(world), [searching(world)], name="agent"))

    @holdfast.workflow
    async def asks(question: str) -> list[Any]:
        tokens: list[str] = []
        found: list[str] = []  # parallel tools come in any order
        updates: list[str] = []
        modes: Any = ["messages", "updates"]
        async for mode, event in made.astream(ask(question), stream_mode=modes):
            if mode == "updates":
                updates += event
            elif event[0].type == "tool":
                found.append(event[0].text)
            else:
                tokens.append(event[0].text)
        return [tokens, sorted(found), updates]

    return asks, ["why"]


# Graphs


class Findings(TypedDict):
    found: Annotated[list[str], operator.add]


def superstep(world: World) -> tuple[Any, list[Any]]:
    """Three nodes at once, of which one fails at first in each process, then one with two calls."""
    model, tries = model_of(world), itertools.count()

    def failing(state: Findings) -> Any:
        world.effect("failing")
        if next(tries) == 0:
            raise RuntimeError("not yet")
        return {"found": ["failing"]}

    async def steady(state: Findings) -> Any:
        await note("first")
        await note("second")
        return {"found": ["steady"]}

    @holdfast.step
    async def note(text: str) -> None:
        await asyncio.to_thread(world.effect, f"note {text}")

    def plain(state: Findings) -> Any:
        world.effect("plain")
        return {"found": ["plain"]}

    async def asking(state: Findings) -> Any:
        left = await model.ainvoke("left")
        await asyncio.to_thread(world.effect, f"asking {left.text}")
        right = await model.ainvoke("right")
        return {"found": [left.text, right.text]}

    builder = StateGraph(Findings)
    for node in (failing, steady, plain):
        builder.add_node(node)
        builder.add_edge(START, node.__name__)
        builder.add_edge(node.__name__, "asking")
    builder.add_node(asking)
    soon = holdfast.Retry(backoff=timedelta(milliseconds=1))
    graph = durable(builder.compile(name="superstep"), retry=soon)
    return graph, [{"found": []}]


# People


def interrupted(world: World) -> tuple[Any, list[Any]]:
    """Two nodes ask somebody at once, one of them twice; then a graph inside, after a call."""
    model = model_of(world)

    async def publish(state: Findings) -> Any:
        title = interrupt({"title of": state["found"]})
        author = interrupt("author")
        await asyncio.to_thread(world.effect, f"publish {title}")
        return {"found": [f"{title} by {author}"]}

    def archive(state: Findings) -> Any:
        where = interrupt("where")
        world.effect(f"archive {where}")
        return {"found": [where]}

    inner = StateGraph(Findings)

    async def check(state: Findings) -> Any:
        world.effect("check")
        verdict = await model.ainvoke("verdict")
        return {"found": [verdict.text, interrupt("sure")]}

    inner.add_node(check)
    inner.add_edge(START, "check")
    builder = StateGraph(Findings)
    builder.add_node(publish)
    builder.add_node(archive)
    builder.add_node("inner", inner.compile())
    builder.add_edge(START, "publish")
    builder.add_edge(START, "archive")
    builder.add_edge(["publish", "archive"], "inner")
    return durable(builder.compile(name="interrupted")), [{"found": []}]


def approved(world: World) -> tuple[Any, list[Any]]:
    """LangChain's own approval of tool calls."""
    asking = HumanInTheLoopMiddleware(interrupt_on={"search": True})
    agent = create_agent(model_of(world), [searching(world)], middleware=[asking], name="agent")

    return told(durable(agent)), ["why"]


def helped(world: World) -> tuple[Any, list[Any]]:
    """An agent whose tool is another agent, whose tool asks somebody."""

    @tool
    def delete(path: str) -> str:
        """Deletes."""
        if interrupt({"delete": path}) == "yes":
            world.effect(f"delete {path}")
        return f"deleted {path}"

    inner = create_agent(model_of(world), [delete])

    @tool
    async def helper(task: str) -> str:
        """Helps."""
        return str((await inner.ainvoke(ask(task)))["messages"][-1].text)

    return told(durable(create_agent(model_of(world), [helper], name="boss"))), ["boss"]


def told(agent: Any) -> Any:
    """What the agent's own run does, with a result that does not depend on ids."""
    run = vars(agent)["__holdfast_workflow__"]

    @holdfast.workflow(name="told")
    async def told(question: str) -> list[Any]:
        state = await run(ask(question))
        return [[message.type, message.text] for message in state["messages"]]

    return told


# A checkpointer of one's own


def conversation(world: World) -> tuple[Any, list[Any]]:
    """Two turns of one thread, whose checkpointer dies with its process."""
    saver, search = InMemorySaver(), searching(world)
    agent: Any = durable(create_agent(model_of(world), [search], checkpointer=saver, name="agent"))

    @holdfast.workflow
    async def asks(*questions: str) -> list[Any]:
        config: Any = {"configurable": {"thread_id": "t"}}
        for question in questions:
            await agent.ainvoke(ask(question), config)
        kept = saver.get_tuple(config)
        assert kept is not None
        return [message.text for message in kept.checkpoint["channel_values"]["messages"]]

    return asks, ["why", "and then"]


def heard(world: World) -> tuple[Any, list[Any]]:
    made: Any = durable(create_agent(model_of(world), [searching(world)], name="agent"))
    return reader(
        world, lambda question: made.astream(ask(question), stream_mode=["messages", "updates"])
    )
