"""Agents of Pydantic AI."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, CallDeferred, RunContext
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_graph import GraphBuilder

import holdfast
from holdfast.adapters.pydantic_ai import durable
from tests.adapters.noted import COMMAND, SERVER, environment
from tests.adapters.readers import Hear, listener, reader
from tests.adapters.world import World


def _agent(world: World, name: str = "researcher", **options: Any) -> Agent[object, str]:
    provider = OpenAIProvider(base_url=world.model_url, api_key="any")
    agent = Agent(OpenAIChatModel("m", provider=provider), name=name, **options)

    @holdfast.step
    async def note(text: str) -> None:
        await asyncio.to_thread(world.effect, f"note {text}")

    @agent.tool_plain
    async def search(q: str) -> str:
        await note(q)
        world.effect(f"search {q}")
        return f"found {q}"

    return agent


def started(world: World) -> tuple[Any, list[Any]]:
    return durable(_agent(world)), ["why"]


def _careful(world: World) -> Agent[object, str]:
    agent = _agent(world, "careful")

    @agent.tool_plain(requires_approval=True)
    async def delete(path: str) -> str:
        world.effect(f"delete {path}")
        return f"deleted {path}"

    @agent.tool_plain
    def ask_elsewhere(q: str) -> str:
        raise CallDeferred

    return durable(agent)


def approved(world: World) -> tuple[Any, list[Any]]:
    return _careful(world), ["clean up"]


def delegated_to_careful(world: World) -> tuple[Any, list[Any]]:
    """An agent whose tool is another agent, which has to ask somebody."""
    helper = _careful(world)
    agent = Agent(helper.model, name="boss")

    @agent.tool_plain
    async def delegate(task: str) -> str:
        return (await helper.run(task)).output

    return durable(agent), ["lead"]


def delegated(world: World) -> tuple[Any, list[Any]]:
    """An agent whose tool is another agent, which is durable, too."""
    helper = durable(_agent(world, "helper"))
    agent = Agent(helper.model, name="boss")

    @agent.tool
    async def delegate(ctx: RunContext[object], task: str) -> str:
        return (await helper.run(task, usage=ctx.usage)).output

    agent = durable(agent)

    @holdfast.workflow
    async def leads(question: str) -> list[Any]:
        result = await agent.run(question)
        return [result.output, result.usage.requests, result.usage.tool_calls]

    return leads, ["lead"]


@dataclass
class Notebook:
    pages: list[str] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)  # has no durable form


def remembered(world: World) -> tuple[Any, list[Any]]:
    """Tools that write into what the agent was given."""
    agent: Agent[Notebook, str] = Agent(_agent(world).model, name="writes", deps_type=Notebook)

    @agent.tool
    async def search(ctx: RunContext[Notebook], q: str) -> str:
        world.effect(f"search {q}")
        ctx.deps.pages.append(q)
        return f"page {len(ctx.deps.pages)}"

    agent = durable(agent)

    @holdfast.workflow
    async def writes(question: str) -> list[str]:
        notebook = Notebook()
        await agent.run(question, deps=notebook)
        return sorted(notebook.pages)

    return writes, ["why"]


def graph(world: World) -> tuple[Any, list[Any]]:
    """A graph of nodes that ask agents."""
    agent = durable(_agent(world))

    builder = GraphBuilder(input_type=str, output_type=list[str], state_type=list[str])

    async def ask(ctx: Any) -> list[str]:
        ctx.state.append((await agent.run(f"part {len(ctx.state)}")).output)
        return ctx.state

    nodes = [builder.step(ask, node_id=f"ask {n}") for n in (1, 2, 3)]
    path: list[Any] = [builder.start_node, *nodes, builder.end_node]
    builder.add(*(builder.edge_from(one).to(other) for one, other in pairwise(path)))
    asks = builder.build()

    @holdfast.workflow
    async def goes_through(question: str) -> list[str]:
        return await asks.run(state=[question], inputs=question)

    return goes_through, ["parts"]


def streamed(world: World) -> tuple[Any, list[Any]]:
    agent = durable(_agent(world))

    @holdfast.workflow
    async def streams(question: str) -> list[str]:
        async with agent.run_stream(question) as stream:
            return [text async for text in stream.stream_text(delta=True)]

    return streams, ["why"]


def events(world: World) -> tuple[Any, list[Any]]:
    agent = durable(_agent(world))

    @holdfast.workflow
    async def handles(question: str) -> list[str]:
        seen: list[str] = []

        async def handle(ctx: Any, events: Any) -> None:
            seen.extend([event.event_kind async for event in events])

        result = await agent.run(question, event_stream_handler=handle)
        return [*seen, result.output]

    return handles, ["why"]


def notes(
    folder: str | Path, args: list[str] = SERVER, *, init_timeout: float = 60
) -> MCPToolset[Any]:
    transport = StdioTransport(COMMAND, args, env=environment(folder))
    return MCPToolset(transport, id="notes", init_timeout=init_timeout)


def adds(world: World) -> tuple[Any, list[Any]]:
    """With tools of an MCP server."""
    provider = OpenAIProvider(base_url=world.model_url, api_key="any")
    model = OpenAIChatModel("m", provider=provider)
    return durable(Agent(model, name="adds", toolsets=[notes(world.folder)])), ["add"]


def heard(world: World) -> tuple[Any, list[Any]]:
    agent = durable(_agent(world))

    async def events(question: str) -> AsyncIterator[Any]:
        async with agent.run_stream_events(question) as events:
            async for event in events:
                yield event

    return reader(world, events)


def handled(world: World) -> tuple[Any, list[Any]]:
    """By a handler, which the framework calls with its events."""
    agent = durable(_agent(world))

    async def listen(question: str, hear: Hear) -> None:
        async def handle(ctx: object, events: AsyncIterable[Any]) -> None:
            async for _ in events:
                await hear()

        await agent.run(question, event_stream_handler=handle)

    return listener(world, listen)
