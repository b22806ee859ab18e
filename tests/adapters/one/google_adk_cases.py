"""Agents of Google ADK."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from google.adk.agents import Context, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events import Event, RequestInput
from google.adk.models import Gemini
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import (
    AgentTool,
    FunctionTool,
    LongRunningFunctionTool,
    ToolContext,
    exit_loop,
)
from google.adk.workflow import JoinNode, Workflow
from google.genai import types

import holdfast
from holdfast.adapters.google_adk import durable
from tests.adapters.one.google_adk_parts import notes
from tests.adapters.readers import reader
from tests.adapters.world import World

warnings.filterwarnings("ignore", category=DeprecationWarning)  # agents of agents will be workflows


def model(world: World) -> Gemini:
    return Gemini(model="gemini-m", base_url=world.model_url, client_kwargs={"api_key": "any"})


def tools(world: World) -> list[Any]:
    @holdfast.step
    async def note(text: str) -> None:
        await asyncio.to_thread(world.effect, f"note {text}")

    async def search(q: str, tool_context: ToolContext) -> str:
        """Searches."""
        await note(q)
        await asyncio.to_thread(world.effect, f"search {q}")
        tool_context.state["found"] = [*tool_context.state.get("found", []), q]
        return f"found {q}"

    def look(q: str) -> dict[str, str]:
        """Looks."""
        world.effect(f"look {q}")
        return {"saw": q}

    return [search, look]


def agent(world: World, name: str = "agent", **options: Any) -> LlmAgent:
    return LlmAgent(name=name, model=model(world), tools=tools(world), **options)


@holdfast.step
async def keep(what: Any) -> None:
    """Something in the world that depends on all of it."""


def texts(events: list[Event]) -> list[str]:
    contents = [event.content for event in events if event.content is not None]
    parts = [part for content in contents for part in content.parts or []]
    return [part.text for part in parts if part.text]


def plain(world: World) -> tuple[Any, list[Any]]:
    return durable(agent(world)), ["why"]


def streamed(world: World) -> tuple[Any, list[Any]]:
    made = durable(agent(world))

    @holdfast.workflow
    async def reads(question: str) -> Any:
        sessions = InMemorySessionService()
        runner = Runner(
            app_name="app", agent=made, session_service=sessions, auto_create_session=True
        )
        said = []
        async for event in runner.run_async(
            user_id="ada",
            session_id="s",
            new_message=types.UserContent(question),
            run_config=RunConfig(streaming_mode=StreamingMode.SSE),
        ):
            parts = event.content.parts if event.content else []
            said.append([event.id, event.timestamp, event.partial, len(parts or [])])
        session = await sessions.get_session(app_name="app", user_id="ada", session_id="s")
        assert session is not None
        # Replayed, it would not find itself if ids, times or what was said were others.
        await keep(said)
        await keep([event.id for event in session.events])
        return [texts(session.events[-1:]), session.state, len(session.events), len(said)]

    return reads, ["why"]


def refund_tool(world: World) -> Any:
    async def refund(order: str) -> str:
        """Gives money back."""
        await asyncio.to_thread(world.effect, f"refund {order}")
        return f"refunded {order}"

    return FunctionTool(refund, require_confirmation=True)


def approved(world: World) -> tuple[Any, list[Any]]:
    """Two confirmations, a tool that asks for one itself, and a ticket that somebody closes."""

    async def close(order: str, tool_context: ToolContext) -> str:
        """Closes an order."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint=f"close {order}?")
            return "asked"
        await asyncio.to_thread(world.effect, f"close {order}")
        return f"closed: {tool_context.tool_confirmation.confirmed}"

    async def open_ticket(text: str) -> dict[str, str]:
        """Opens a ticket."""
        await asyncio.to_thread(world.effect, f"ticket {text}")
        return {"status": "pending", "ticket": text}

    made = LlmAgent(
        name="agent",
        model=model(world),
        tools=[refund_tool(world), close, LongRunningFunctionTool(open_ticket)],
    )
    return durable(made), ["why"]


def team(world: World) -> tuple[Any, list[Any]]:
    """Triage hands over to billing, which has a helper that needs a confirmation for its tool."""
    helper = LlmAgent(
        name="helper",
        model=model(world),
        instruction="You are the helper.",
        tools=[refund_tool(world), *tools(world)],
    )
    billing = LlmAgent(
        name="billing",
        model=model(world),
        instruction="You are billing.",
        tools=[AgentTool(helper), *tools(world)],
    )
    triage = LlmAgent(
        name="triage",
        model=model(world),
        instruction="You are triage.",
        sub_agents=[billing],
    )
    return durable(triage), ["why"]


def _named(world: World, name: str) -> LlmAgent:
    return agent(world, name, instruction=f"You are {name}.", output_key=name)


def row(world: World) -> tuple[Any, list[Any]]:
    """One agent again and again until it is content, then another."""
    critic = LlmAgent(
        name="critic",
        model=model(world),
        instruction="You are critic.",
        tools=[exit_loop, *tools(world)],
    )
    again = LoopAgent(name="again", sub_agents=[critic], max_iterations=3)
    whole = SequentialAgent(name="whole", sub_agents=[again, _named(world, "last")])
    return durable(whole), ["why"]


def beside(world: World) -> tuple[Any, list[Any]]:
    """Two beside one another; what they say is kept in the session's state."""
    both = ParallelAgent(name="both", sub_agents=[_named(world, n) for n in ("left", "right")])
    sessions = InMemorySessionService()
    runner = Runner(app_name="app", agent=both, session_service=sessions, auto_create_session=True)
    durable(runner)

    @holdfast.workflow
    async def asks(question: str) -> list[str]:
        message = types.UserContent(question)
        async for _ in runner.run_async(user_id="ada", session_id="s", new_message=message):
            pass
        session = await sessions.get_session(app_name="app", user_id="ada", session_id="s")
        assert session is not None
        await keep([event.id for event in session.events])
        return [session.state["left"], session.state["right"]]

    return asks, ["why"]


def talk(world: World) -> tuple[Any, list[Any]]:
    """Two turns of a conversation that is kept in a file beside the run's store."""
    made = durable(agent(world))

    @holdfast.workflow
    async def talks(question: str) -> Any:
        sessions = SqliteSessionService(str(Path(world.folder) / "sessions.db"))
        runner = Runner(
            app_name="app", agent=made, session_service=sessions, auto_create_session=True
        )
        said = []
        for turn in (question, "and"):
            message = types.UserContent(turn)
            events = runner.run_async(user_id="ada", session_id="s", new_message=message)
            said += texts([event async for event in events][-1:])

        @holdfast.step
        async def look() -> list[Any]:
            session = await sessions.get_session(app_name="app", user_id="ada", session_id="s")
            assert session is not None
            return [len(session.events), session.state]

        return [said, await look()]

    return talks, ["why"]


def graph(world: World) -> tuple[Any, list[Any]]:
    """A function, two beside one another, an agent and a person."""

    async def prepare(node_input: str, ctx: Context) -> str:
        await asyncio.to_thread(world.effect, "prepare")
        ctx.state["prepared"] = True
        return "topic"

    def left(node_input: str) -> str:
        world.effect(f"left {node_input}")
        return f"left of {node_input}"

    def right(node_input: str) -> str:
        world.effect(f"right {node_input}")
        return f"right of {node_input}"

    async def joined(node_input: dict[str, str], ctx: Context) -> str:
        assert ctx.state["prepared"]
        return " and ".join(node_input[side] for side in sorted(node_input))

    async def ask(node_input: Any) -> AsyncIterator[RequestInput]:
        yield RequestInput(interrupt_id="publish", message="publish?", response_schema=None)

    async def publish(node_input: Any) -> str:
        await asyncio.to_thread(world.effect, "publish")
        return f"published: {node_input}"

    both = JoinNode(name="both")
    writer = agent(world, "writer", instruction="You are writer.")
    edges: list[Any] = [
        ("START", prepare, (left, right), both, joined, writer, ask, publish),
    ]
    return durable(Workflow(name="graph", edges=edges)), ["why"]


def adds(world: World) -> tuple[Any, list[Any]]:
    """With tools of an MCP server."""
    return durable(LlmAgent(name="adds", model=model(world), tools=[notes(world.folder)])), ["add"]


def heard(world: World) -> tuple[Any, list[Any]]:
    made = durable(agent(world))

    def events(question: str) -> AsyncIterator[Event]:
        runner = Runner(
            app_name="app",
            agent=made,
            session_service=InMemorySessionService(),
            auto_create_session=True,
        )
        return runner.run_async(
            user_id="ada",
            session_id="s",
            new_message=types.UserContent(question),
            run_config=RunConfig(streaming_mode=StreamingMode.SSE),
        )

    return reader(world, events)
