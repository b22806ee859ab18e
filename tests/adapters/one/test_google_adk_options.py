"""What of Google ADK's models is tried again, streamed or refused; and bad input."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import google.adk.runners
import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.plugins import ReflectAndRetryToolPlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import ToolContext
from google.genai import errors, types

import holdfast
from holdfast.adapters._shared import UntestedVersion
from holdfast.adapters.google_adk import durable, hooks
from holdfast.testing.crashes import crash_everywhere
from holdfast.testing.model_server import Asked, ModelServer, Reply
from tests.adapters.one.google_adk_parts import (
    ONCE,
    SOON,
    SSE,
    Connect,
    asking,
    clients,
    runner_of,
    texts,
)
from tests.adapters.outcomes import cause_of, result_of

OVERFLOW = Reply(
    status=400, text="The input token count (9) exceeds the maximum number of tokens allowed (8)."
)


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with clients() as connect:
        yield connect


# Models


async def test_a_call_of_a_model_is_tried_again_under_the_same_key(connect: Connect) -> None:
    busy = Reply(status=429, retry_after=0.01)
    with ModelServer({"hello": [Reply(status=500), busy, "yes"]}) as model:
        own = types.HttpRetryOptions(attempts=4, initial_delay=0.001)
        agent = LlmAgent(name="support", model=connect(model, retry_options=own))
        assert await result_of(durable(agent, retry=SOON), "hello") == "yes"
        assert len(model.requests) == 3
        assert len({asked.idempotency_key for asked in model.requests}) == 1


async def test_failures_that_a_plugin_counts_are_those_of_one_run(connect: Connect) -> None:
    """`crash_everywhere` replays in a process in which the plugin has counted before."""

    async def broken(q: str) -> str:
        """Fails."""
        raise ValueError(q)

    script = [*(Reply(tool_calls=[("broken", {"q": q})]) for q in "ab"), Reply(text="Done.")]
    with ModelServer(script) as model:
        agent = durable(LlmAgent(name="support", model=connect(model), tools=[broken]))
        app = App(name="app", root_agent=agent, plugins=[ReflectAndRetryToolPlugin()])
        runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
        workflow = vars(durable(runner))["__holdfast_workflow__"]
        report = await crash_everywhere(workflow, "hello", clock=holdfast.SystemClock())
    assert report.result == "Done."
    assert "'retry_count': 2" in str(model.requests[2].body["contents"])


@pytest.mark.filterwarnings("ignore:.EXPERIMENTAL.")  # says ADK of the configuration
async def test_a_conversation_is_summarised_once(connect: Connect) -> None:
    def script(asked: Asked) -> str:
        return f"summary {asked.number}" if "conversation history" in asked.prompt else "yes"

    with ModelServer(script) as model:
        summarizer = LlmEventSummarizer(llm=connect(model))
        config = EventsCompactionConfig(
            compaction_interval=1, overlap_size=0, summarizer=summarizer
        )
        agent = durable(LlmAgent(name="support", model=connect(model)))
        app = App(name="app", root_agent=agent, events_compaction_config=config)

        @holdfast.workflow
        async def talks() -> list[str]:
            sessions = InMemorySessionService()
            runner = Runner(app=app, session_service=sessions, auto_create_session=True)
            said = []
            for question in ("hello", "and"):
                events = runner.run_async(**asking(question))
                said += texts([event async for event in events])
            return said

        report = await crash_everywhere(talks, clock=holdfast.SystemClock())
        assert report.result == ["yes", "yes"]
        assert report.steps["/summary#0"] == report.steps["/summary#1"] == 1
        assert "summary 2" in str(model.requests[2].body["contents"])


async def test_a_model_that_fails_for_good_raises_its_own_error(connect: Connect) -> None:
    with ModelServer({"hello": Reply(status=500)}) as model:
        agent = durable(LlmAgent(name="support", model=connect(model)), retry=SOON)
        assert isinstance(await cause_of(agent, "hello"), errors.ServerError)
        assert len(model.requests) == 3


@pytest.mark.parametrize("config", [None, SSE])
async def test_other_models_are_asked_in_order(connect: Connect, config: Any) -> None:
    with ModelServer({"": Reply(status=500)}) as broken, ModelServer({"": "yes"}) as model:
        others = [connect(broken), connect(model)]
        agent = LlmAgent(name="support", model=connect(broken))
        runner = runner_of(durable(agent, retry=ONCE, models=others))

        @holdfast.workflow
        async def asks() -> list[str]:
            events = [event async for event in runner.run_async(**asking(run_config=config))]
            return texts(events[-1:])

        assert await result_of(asks) == ["yes"]
        assert (len(broken.requests), len(model.requests)) == (2, 1)


async def test_a_context_overflow_is_its_own_error(connect: Connect) -> None:
    with ModelServer({"hello": OVERFLOW}) as model:
        agent = durable(LlmAgent(name="support", model=connect(model)))
        assert isinstance(await cause_of(agent, "hello"), holdfast.ContextOverflow)
        assert len(model.requests) == 1


async def test_what_is_too_long_is_made_shorter(connect: Connect) -> None:
    async def shorter(contents: list[types.Content]) -> list[types.Content]:
        return [types.UserContent("brief")]

    with ModelServer({"hello": OVERFLOW, "brief": "yes"}) as model:
        agent = durable(LlmAgent(name="support", model=connect(model)), on_overflow=shorter)
        assert await result_of(agent, "hello") == "yes"


async def test_a_stream_is_read_while_it_comes(connect: Connect) -> None:
    read = threading.Event()

    def wait(asked: Asked, piece: int) -> None:
        if piece == 2:
            assert read.wait(120), "the second piece was not handed on before the third came"

    with ModelServer({"": Reply(text="one two three four", chunk=4)}, on_piece=wait) as model:
        runner = runner_of(durable(LlmAgent(name="support", model=connect(model))))

        @holdfast.workflow
        async def reads() -> list[str]:
            said = []
            async for event in runner.run_async(**asking(run_config=SSE)):
                said += texts([event])
                if len(said) == 2:
                    read.set()
            return said

        said = await result_of(reads)
        assert said == ["one ", "two ", "thre", "e fo", "ur", "one two three four"]


async def test_a_stream_that_breaks_in_its_middle_is_not_begun_again(connect: Connect) -> None:
    def cut(asked: Asked, piece: int) -> None:
        if piece == 2:
            raise ConnectionResetError

    with ModelServer({"": Reply(text="one two three four", chunk=4)}, on_piece=cut) as model:
        runner = runner_of(durable(LlmAgent(name="support", model=connect(model)), retry=SOON))

        @holdfast.workflow
        async def reads() -> None:
            async for _ in runner.run_async(**asking(run_config=SSE)):
                pass

        assert "broke in its middle" in str(await cause_of(reads))
        assert len(model.requests) == 1


class Nameless(BaseLlm):
    """A model that gives its calls no ids, and bytes that are no text."""

    model: str = "nameless"

    async def generate_content_async(  # type: ignore[override]
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        last = llm_request.contents[-1].parts or []
        if any(part.function_response for part in last):
            yield LlmResponse(content=types.ModelContent("Done."))
            return
        call = types.FunctionCall(name="look", args={"q": "a"})
        signed = types.Part(function_call=call, thought_signature=b"\xff\x00")
        yield LlmResponse(content=types.Content(role="model", parts=[signed]))


async def test_ids_are_the_same_on_replay_though_the_model_gives_none() -> None:
    async def look(q: str, tool_context: ToolContext) -> str:
        """Looks."""
        return f"saw {q}"

    @holdfast.step
    async def keep(what: Any) -> None:
        pass

    agent = durable(LlmAgent(name="support", model=Nameless(), tools=[look]))

    @holdfast.workflow
    async def asks() -> int:
        events = [event async for event in runner_of(agent).run_async(**asking())]
        first = (events[0].content.parts or [])[0]  # type: ignore[union-attr]
        assert first.thought_signature == b"\xff\x00"
        await keep([[e.id, e.invocation_id, e.timestamp] for e in events])
        await keep([call.id for e in events for call in e.get_function_calls()])
        return len(events)

    await crash_everywhere(asks)


# Input


@pytest.mark.parametrize("thing", [None, "support", object()])
def test_what_is_no_agent_is_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match="takes an agent"):
        durable(thing)


def test_a_name_is_not_empty() -> None:
    with pytest.raises(holdfast.BadArguments, match="has no name"):
        durable(LlmAgent(name="support"), name=" ")


def test_models_are_names_or_models() -> None:
    wrong: Any = [3]
    with pytest.raises(holdfast.BadArguments, match="a model of ADK or its name"):
        durable(LlmAgent(name="support"), models=wrong)


def test_a_missing_hook_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hooks.HOOKS.found, "google.adk.runners:Runner.run_async", None)
    with pytest.raises(holdfast.Unsupported, match=r"google-adk .* has no .*Runner\.run_async"):
        durable(LlmAgent(name="support"))


def test_a_newer_version_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks.HOOKS, "tested", "1.0.0")
    with pytest.warns(UntestedVersion, match="newer than 1.0.0"):
        durable(LlmAgent(name="support"))


def test_explain_says_what_will_be_journaled(capsys: pytest.CaptureFixture[str]) -> None:
    def search(q: str) -> str:
        """Searches."""
        return q

    helper = LlmAgent(name="helper", tools=[search])
    durable(LlmAgent(name="support", sub_agents=[helper]), models=["gemini-2.5-pro"], explain=True)
    said = capsys.readouterr().out
    assert "steps '<agent>.model': each call of a model by: support, helper" in said
    assert "steps '<tool>:<id of the call>': each call of: search" in said
    assert "of: gemini-2.5-pro" in said


def test_runners_are_wrapped_once() -> None:
    durable(LlmAgent(name="one"))
    before = google.adk.runners.Runner.run_async
    durable(LlmAgent(name="other"))
    assert google.adk.runners.Runner.run_async is before
