"""Agents of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI

import holdfast
from holdfast.adapters.openai_agents import durable
from tests.adapters.noted import COMMAND, SERVER, environment
from tests.adapters.readers import reader
from tests.adapters.world import World

set_tracing_disabled(True)


def model(world: World, *, responses: bool = False) -> Any:
    client = AsyncOpenAI(base_url=world.model_url, api_key="any")
    kind = OpenAIResponsesModel if responses else OpenAIChatCompletionsModel
    return kind("m", client)


def tools(world: World) -> list[Any]:
    @holdfast.step
    async def note(text: str) -> None:
        await asyncio.to_thread(world.effect, f"note {text}")

    @function_tool
    async def search(q: str) -> str:
        await note(q)
        await asyncio.to_thread(world.effect, f"search {q}")
        return f"found {q}"

    @function_tool
    def look(q: str) -> str:
        world.effect(f"look {q}")
        return f"saw {q}"

    return [search, look]


def plain(world: World) -> tuple[Any, list[Any]]:
    return durable(Agent(name="agent", model=model(world), tools=tools(world))), ["why"]


def responses(world: World) -> tuple[Any, list[Any]]:
    made = Agent(name="agent", model=model(world, responses=True), tools=tools(world))
    return durable(made), ["why"]


def _streamed(world: World, **options: Any) -> tuple[Any, list[Any]]:
    agent = durable(Agent(name="agent", model=model(world, **options), tools=tools(world)))

    @holdfast.workflow
    async def reads(question: str) -> Any:
        said: list[str] = []
        result = Runner.run_streamed(agent, question)
        async for event in result.stream_events():
            said.append(getattr(getattr(event, "data", None), "type", event.type))
        return [result.final_output, result.context_wrapper.usage.requests, said]

    return reads, ["why"]


def streamed(world: World) -> tuple[Any, list[Any]]:
    return _streamed(world)


def streamed_responses(world: World) -> tuple[Any, list[Any]]:
    return _streamed(world, responses=True)


def _refund(world: World) -> Any:
    @function_tool(needs_approval=True)
    async def refund(order: str) -> str:
        await asyncio.to_thread(world.effect, f"refund {order}")
        return f"refunded {order}"

    return refund


def approved(world: World) -> tuple[Any, list[Any]]:
    return durable(Agent(name="agent", model=model(world), tools=[_refund(world)])), ["why"]


def approved_stream(world: World) -> tuple[Any, list[Any]]:
    agent = durable(Agent(name="agent", model=model(world), tools=[_refund(world)]))

    @holdfast.workflow
    async def reads(question: str) -> Any:
        result = Runner.run_streamed(agent, question)
        said = [event.type async for event in result.stream_events()]
        return [result.final_output, said]

    return reads, ["why"]


def team(world: World) -> tuple[Any, list[Any]]:
    """Triage hands off to billing, which has a helper that needs an approval for its tool."""
    helper = Agent(name="helper", model=model(world), tools=[_refund(world), *tools(world)])
    billing = Agent(
        name="billing",
        instructions="billing",
        model=model(world),
        tools=[helper.as_tool("helper", "helps"), *tools(world)],
    )
    triage = Agent(name="triage", instructions="triage", model=model(world), handoffs=[billing])
    return durable(triage), ["why"]


def talk(world: World) -> tuple[Any, list[Any]]:
    """Two turns of a conversation in a session that is kept in a file beside the run's store."""
    agent = durable(Agent(name="agent", model=model(world), tools=tools(world)))

    @holdfast.workflow
    async def talks(question: str) -> Any:
        session = SQLiteSession("ada", Path(world.folder) / "session.db")
        said = []
        for turn in (question, "and then"):
            said.append((await Runner.run(agent, turn, session=session)).final_output)
        items = await Runner.run(agent, "all", session=session)
        return [said, len(items.to_input_list())]

    return talks, ["why"]


def notes(folder: str | Path, args: list[str] = SERVER) -> MCPServerStdio:
    params: Any = {"command": COMMAND, "args": args, "env": environment(folder)}
    return MCPServerStdio(params, name="notes", client_session_timeout_seconds=60)


def adds(world: World) -> tuple[Any, list[Any]]:
    """With tools of an MCP server."""
    made = Agent(name="adds", model=model(world), mcp_servers=[notes(world.folder)])
    return durable(made), ["add"]


def heard(world: World) -> tuple[Any, list[Any]]:
    agent = durable(Agent(name="agent", model=model(world), tools=tools(world)))
    return reader(world, lambda question: Runner.run_streamed(agent, question).stream_events())
