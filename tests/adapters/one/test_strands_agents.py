"""How agents of AWS Strands are used in runs, and what they remember."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from strands import Agent, tool
from strands.agent.conversation_manager import SummarizingConversationManager
from strands.hooks import BeforeToolCallEvent
from strands.models.openai import OpenAIModel
from strands.session import SnapshotSessionManager
from strands.storage import InMemoryStorage

import holdfast
from holdfast.adapters._shared import UntestedVersion
from holdfast.adapters.strands import durable, hooks
from holdfast.testing import Environment
from holdfast.testing.model_server import ModelServer, Reply
from tests.adapters.outcomes import cause_of, result_of


def made(server: ModelServer, name: str = "support", **options: Any) -> Agent:
    args = {"base_url": server.url, "api_key": "any"}
    model = OpenAIModel(client_args=args, model_id="m")
    return Agent(**{"name": name, "model": model, "callback_handler": None, **options})


def texts(messages: Any) -> list[str]:
    return [block["text"] for message in messages for block in message["content"]]


# Conversations


async def test_runs_do_not_hear_one_another_and_leave_the_agent_as_it_was() -> None:
    with ModelServer({"a": "A", "b": "B"}) as server:
        agent = durable(made(server))

        @holdfast.workflow
        async def asks(*questions: str) -> list[str]:
            for question in questions:
                await agent.invoke_async(question)
            return texts(agent.messages)

        async with holdfast.Holdfast(":memory:", workflows=[asks]) as app:
            runs = [await app.start(asks, *questions) for questions in (("a", "b"), ("b",))]
            told = [await asyncio.wait_for(run.result(), 120) for run in runs]
        assert told == [["a", "A", "b", "B"], ["b", "B"]]
        assert agent.messages == []
        await agent.invoke_async("a")  # outside of runs it is the agent that it was
        assert texts(agent.messages) == ["a", "A"]
        assert server.requests[-1].idempotency_key is None


async def test_what_an_agent_said_comes_back_in_a_process_that_has_done_other_runs() -> None:
    noted: list[Any] = []

    @holdfast.step
    async def keep(messages: Any) -> None:
        noted.append(messages)

    with ModelServer(["yes"]) as server:
        agents = [durable(made(server))]

        @holdfast.workflow
        async def asks(question: str, hours: int) -> list[str]:
            await agents[-1].invoke_async(question)
            await keep(agents[-1].messages)  # the same on replay, with its ids and times
            await holdfast.sleep(timedelta(hours=hours))
            await agents[-1].invoke_async(question)
            return texts(agents[-1].messages)

        async with Environment([asks]) as env:
            first = await env.result(await env.start(asks, "first", 0))
            assert first == ["first", "yes"] * 2
            run = await env.start(asks, "second", 1)
            await env.settle()
            await env.crash()
            agents.append(durable(made(server)))
            await env.advance(timedelta(hours=2))
            assert await env.result(run) == ["second", "yes"] * 2
        assert [asked.prompt for asked in server.requests] == ["first"] * 2 + ["second"] * 2
        assert len(noted) == 2


# Ways to ask


def test_agents_are_called_in_def_workflows_and_sync_tools() -> None:
    with ModelServer(
        {"help": "Helped.", "hello": [Reply(tool_calls=[("ask", {})]), "Done."]}
    ) as server:
        helper = durable(made(server, "helper"))

        @tool
        def ask() -> str:
            """Asks."""
            return str(helper("help"))

        agent = durable(made(server, tools=[ask]))

        @holdfast.workflow
        def asks() -> str:
            return str(agent("hello"))

        app = holdfast.Holdfast(":memory:", workflows=[asks])
        with app.sync() as door:
            run = door.start(asks)
            assert run.result() == "Done.\n"


async def test_a_sync_call_in_an_async_workflow_names_the_cure() -> None:
    with ModelServer(["yes"]) as server:
        agent = durable(made(server))

        @holdfast.workflow
        async def asks() -> str:
            return str(agent("hello"))

        assert "await agent.invoke_async" in str(await cause_of(asks))


async def test_whoever_leaves_a_stream_early_finds_it_so_on_replay() -> None:
    with ModelServer(["one\ntwo\nthree"]) as server:
        agent = durable(made(server))

        @holdfast.workflow
        async def asks() -> list[str]:
            heard: list[str] = []
            async with contextlib.aclosing(agent.stream_async("hello")) as events:  # type: ignore[type-var]
                async for event in events:
                    if "data" in event:
                        heard.append(event["data"])
                        break
            await holdfast.sleep(timedelta(hours=1))
            await agent.invoke_async("again")
            return heard

        async with Environment([asks]) as env:
            run = await env.start(asks)
            await env.settle()
            await env.crash()
            await env.advance(timedelta(hours=2))
            assert await env.result(run) == ["one\n"]
        assert len(server.requests) == 2


class Weather(BaseModel):
    degrees: int


async def test_structured_output_is_the_result_of_a_run() -> None:
    with ModelServer([Reply(tool_calls=[("Weather", {"degrees": 20})])]) as server:
        agent = durable(made(server, structured_output_model=Weather))
        assert await result_of(agent, "hello") == Weather(degrees=20)


async def test_structured_output_is_a_step_when_the_model_is_asked_for_it_alone() -> None:
    with ModelServer(['{"degrees": 20}']) as server:
        agent = durable(made(server))

        @holdfast.workflow
        async def asks(hours: int) -> int:
            with pytest.warns(DeprecationWarning):
                found = await agent.structured_output_async(Weather, "hello")
            await holdfast.sleep(timedelta(hours=hours))
            return found.degrees

        async with Environment([asks]) as env:
            run = await env.start(asks, 1)
            await env.settle()
            await env.crash()
            await env.advance(timedelta(hours=2))
            assert await env.result(run) == 20
        assert len(server.requests) == 1


# Interrupts


class Guard:
    def register_hooks(self, registry: Any, **_: Any) -> None:
        registry.add_callback(BeforeToolCallEvent, self.ask)

    def ask(self, event: BeforeToolCallEvent) -> None:
        if event.interrupt("sure", reason=event.tool_use["input"]) != "yes":
            event.cancel_tool = "not allowed"


def guarded(server: ModelServer, done: list[str]) -> Any:
    @tool
    async def refund(order: str) -> str:
        """Gives money back."""
        done.append(order)
        return f"refunded {order}"

    return made(server, tools=[refund], hooks=[Guard()])


TWO: list[Any] = [
    Reply(tool_calls=[("refund", {"order": "a"}), ("refund", {"order": "b"})]),
    "Done.",
]


async def test_interrupts_of_hooks_are_answered_one_by_one() -> None:
    done: list[str] = []
    with ModelServer(TWO) as server:
        agent = durable(guarded(server, done))
        async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
            run = await app.start(agent, "hello")
            await run.resolve("sure:call_0_1", None, early=True)
            await run.resolve("sure:call_0_0", "yes", early=True)
            assert await asyncio.wait_for(run.result(), 120) == "Done."
        assert done == ["a"]
        told = str(server.requests[1].body["messages"][-2:])
        assert "refunded a" in told and "not allowed" in told


async def test_without_approvals_the_caller_is_asked() -> None:
    done: list[str] = []
    with ModelServer(TWO) as server:
        agent = durable(guarded(server, done), approvals=False)

        @holdfast.workflow
        async def asks() -> str:
            result = await agent.invoke_async("hello")
            assert result.stop_reason == "interrupt" and result.interrupts is not None
            said: Any = [
                {"interruptResponse": {"interruptId": one.id, "response": "yes"}}
                for one in result.interrupts
            ]
            return str(await agent.invoke_async(said))

        assert await result_of(asks) == "Done.\n"
        assert sorted(done) == ["a", "b"]


# Bad input


@pytest.mark.parametrize("thing", [None, "agent", object(), Agent])
def test_what_is_no_agent_is_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match="an Agent, Graph or Swarm"):
        durable(thing)


def test_an_agent_needs_a_name_to_be_started() -> None:
    with ModelServer([]) as server:
        with pytest.raises(holdfast.BadArguments, match="give it one"):
            durable(made(server, " "))
        unnamed = durable(made(server, name=None))  # type: ignore[arg-type]
        with pytest.raises(holdfast.HoldfastError, match=r"durable\(agent, name="):
            holdfast.Holdfast(":memory:", workflows=[unnamed])
        holdfast.Holdfast(":memory:", workflows=[durable(unnamed, name="support")])


def test_a_model_that_cannot_be_journaled_is_refused() -> None:
    odd: Any = object()
    with ModelServer([]) as server:
        with pytest.raises(holdfast.BadArguments, match=r"strands\.models\.Model"):
            durable(made(server), models=[odd])
        agent = made(server)
        agent.model = odd
        with pytest.raises(holdfast.BadArguments, match=r"strands\.models\.Model"):
            durable(agent)


def test_what_a_run_cannot_journal_is_refused() -> None:
    with ModelServer([]) as server:
        session = SnapshotSessionManager("s", storage=InMemoryStorage())
        with pytest.raises(holdfast.Unsupported, match="session_manager"):
            durable(made(server, session_manager=session))
        manager = SummarizingConversationManager(proactive_compression=True)
        with pytest.raises(holdfast.Unsupported, match="proactive_compression"):
            durable(made(server, conversation_manager=manager))
        with pytest.raises(holdfast.Unsupported, match="background_tasks"):
            durable(made(server, background_tasks=True))


async def test_tools_are_not_called_by_hand_in_runs() -> None:
    @tool
    def look() -> str:
        """Looks."""
        return "seen"

    with ModelServer(["yes"]) as server:
        agent: Any = durable(made(server, tools=[look]))

        @holdfast.workflow
        async def asks() -> str:
            return str(agent.tool.look())

        assert isinstance(await cause_of(asks), holdfast.Unsupported)
        assert agent.tool.look()["status"] == "success"


def test_a_missing_hook_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hooks.HOOKS.found, "strands.models:Model.stream", None)
    with ModelServer([]) as server, pytest.raises(holdfast.Unsupported, match=r"Model\.stream"):
        durable(made(server))


def test_a_newer_version_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks.HOOKS, "tested", "0.1.0")
    with ModelServer([]) as server, pytest.warns(UntestedVersion, match="newer than 0.1.0"):
        durable(made(server))


def test_explain_says_what_will_be_journaled(capsys: pytest.CaptureFixture[str]) -> None:
    @tool
    def look() -> str:
        """Looks."""
        return "seen"

    with ModelServer([]) as server:
        helper = made(server, "helper")
        durable(made(server, tools=[look, helper]), explain=True)
    said = capsys.readouterr().out
    for part in ("support, helper", "each call of: look", "behind: helper", "middleware"):
        assert part in said
