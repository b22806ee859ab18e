"""Graphs of LangGraph within one another, and what they stream."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from langgraph.types import Command

import holdfast
from holdfast.adapters.langgraph import durable
from holdfast.testing import crash_everywhere
from holdfast.testing.model_server import Asked, ModelServer, Reply


class State(TypedDict):
    said: Annotated[list[str], operator.add]


def chat(model: ModelServer) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=model.url, api_key="any")  # type: ignore[arg-type]


def ask(question: str) -> Any:
    return {"messages": [{"role": "user", "content": question}]}


async def test_events_of_nodes_and_of_graphs_inside_come_again_after_a_crash() -> None:
    def write(state: State) -> Any:
        get_stream_writer()("half way")
        return {"said": ["inner"]}

    inner = StateGraph(State)
    inner.add_node(write)
    inner.add_edge(START, "write")
    compiled = inner.compile()

    async def calls(state: State) -> Any:
        get_stream_writer()("calling")
        await compiled.ainvoke({"said": []})
        return {"said": ["outer"]}

    builder = StateGraph(State)
    builder.add_node(calls)
    builder.add_node("again", compiled)
    builder.add_edge(START, "calls")
    builder.add_edge("calls", "again")
    made: Any = durable(builder.compile())

    @holdfast.workflow
    async def hears() -> list[Any]:
        heard: list[Any] = []
        modes: Any = ["custom", "updates"]
        async for ns, mode, event in made.astream({"said": []}, stream_mode=modes, subgraphs=True):
            heard.append([ns, mode, event if mode == "custom" else sorted(event)])
        return heard

    report = await crash_everywhere(hears)  # with the same ids of tasks on each replay
    assert [[[part.partition(":")[0] for part in ns], *heard] for ns, *heard in report.result] == [
        [[], "custom", "calling"],
        [["calls"], "custom", "half way"],
        [["calls"], "updates", ["write"]],
        [[], "updates", ["calls"]],
        [["again"], "custom", "half way"],
        [["again"], "updates", ["write"]],
        [[], "updates", ["again"]],
    ]


async def test_tokens_are_heard_while_the_rest_is_yet_to_come() -> None:
    heard: list[str] = []
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(asked: Asked, piece: int) -> None:
        if piece == 3:
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

    with ModelServer(["one\ntwo\nthree"], on_piece=hold) as model:
        agent: Any = durable(create_agent(chat(model)))

        @holdfast.workflow
        async def asks() -> list[str]:
            async for token, _ in agent.astream(ask("go"), stream_mode="messages"):
                if token.text:
                    heard.append(token.text)
                    go_on.set()
            return heard

        async with holdfast.Holdfast(":memory:", workflows=[asks]) as app:
            run = await app.start(asks)
            assert await asyncio.wait_for(run.result(), 120) == ["one\n", "two\n", "three"]


async def test_what_an_agent_calls_that_is_a_tool_nests_in_its_call() -> None:
    with ModelServer(
        {
            "boss": [Reply(tool_calls=[("helper", {"task": "small"})]), "thanks"],
            "small": [Reply(tool_calls=[("look", {})]), "looked"],
        }
    ) as model:

        @tool
        def look() -> str:
            """Looks."""
            return "seen"

        inner = create_agent(chat(model), [look])  # nobody made it durable

        @tool
        async def helper(task: str) -> str:
            """Helps."""
            return str((await inner.ainvoke(ask(task)))["messages"][-1].text)

        agent = durable(create_agent(chat(model), [helper], name="agent"))
        async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
            run = await app.start(agent, ask("boss"))
            state = await asyncio.wait_for(run.result(), 120)
            assert [message.text for message in state["messages"]] == [
                "boss",
                "",
                "looked",
                "thanks",
            ]
            keys = [entry.key for entry in await app.history(run.id)]
            (key,) = [key for key in keys if key.endswith("/look:call_0_0#0")]
            assert "/helper:call_0_0#0/" in key


async def test_a_node_inside_hands_over_to_a_node_outside() -> None:
    def hand_over(state: State) -> Any:
        return Command(goto="last", update={"said": ["handed over"]}, graph=Command.PARENT)

    inner = StateGraph(State)
    inner.add_node(hand_over)
    inner.add_edge(START, "hand_over")
    builder = StateGraph(State)
    builder.add_node("inner", inner.compile())
    builder.add_node("last", lambda state: {"said": ["last"]})
    builder.add_edge(START, "inner")
    made = durable(builder.compile())

    @holdfast.workflow
    async def uses() -> list[str]:
        return list((await made.ainvoke({"said": []}))["said"])

    assert (await crash_everywhere(uses)).result == ["handed over", "last"]


async def test_a_rerun_of_a_failed_run_begins_at_the_node_that_failed() -> None:
    begun: list[str] = []

    def works(state: State) -> Any:
        begun.append("works")
        return {"said": ["works"]}

    def fails(state: State) -> Any:
        begun.append("fails")
        if len(begun) < 3:
            raise ValueError("not today")
        return {"said": ["better"]}

    builder = StateGraph(State)
    builder.add_node(works)
    builder.add_node(fails)
    builder.add_edge(START, "works")
    builder.add_edge("works", "fails")
    made = durable(builder.compile(name="graph"))
    async with holdfast.Holdfast(":memory:", workflows=[made]) as app:
        run = await app.start(made, {"said": []})
        try:
            await asyncio.wait_for(run.result(), 120)
        except holdfast.RunFailed:
            await app.rerun(run.id)
        assert await asyncio.wait_for(run.result(), 120) == {"said": ["works", "better"]}
    assert begun == ["works", "fails", "fails"]
