"""Parts that not every agent of AWS Strands has: what works in runs, and what is refused."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from openai import AsyncOpenAI
from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent
from strands.memory import MemoryManager
from strands.memory.types import MemoryEntry
from strands.models.openai import OpenAIModel
from strands.models.openai_responses import OpenAIResponsesModel
from strands.models.routing import ModelRouter
from strands.vended_plugins.context_offloader import ContextOffloader, InMemoryStorage
from strands.vended_plugins.goal import GoalLoop
from strands.vended_plugins.steering import Guide, LLMSteeringHandler, Proceed, SteeringHandler

import holdfast
from holdfast.adapters.strands import durable
from holdfast.testing import crash_everywhere
from holdfast.testing.model_server import Asked, ModelServer, Reply
from tests.adapters.outcomes import cause_of

ONCE = holdfast.Retry(attempts=1)
REAL = holdfast.SystemClock()
SCRIPT: list[Any] = [Reply(tool_calls=[("search", {"q": "a"})]), "Done."]


@tool
async def search(q: str) -> str:
    """Searches."""
    return f"found {q}"


def made(model: Any, **options: Any) -> Any:
    return Agent(
        **{"name": "support", "model": model, "callback_handler": None, "tools": [search]} | options
    )


def run_of(agent: Any) -> Any:
    return vars(agent)["__holdfast_workflow__"]


class Notes:
    """A store of memories."""

    name, description, max_search_results = "notes", None, None
    writable = True

    def __init__(self, *, extraction: bool = False) -> None:
        self.kept: list[str] = []
        self.extraction = extraction

    async def search(self, query: str, options: Any = None) -> list[MemoryEntry]:
        return [MemoryEntry(content=text) for text in self.kept]

    async def add(self, content: str, metadata: Any = None) -> None:
        self.kept.append(content)


def memory(**options: Any) -> MemoryManager:
    store: Any = options.pop("store", None) or Notes()
    return MemoryManager(stores=[store], **options)


async def test_a_router_turns_to_the_same_model_on_replay() -> None:
    def script(asked: Asked) -> Any:
        return Reply(status=500) if asked.body["model"] == "first" else SCRIPT[asked.turn]

    with ModelServer(script) as server:
        async with AsyncOpenAI(base_url=server.url, api_key="any") as client:
            models = [OpenAIModel(client=client, model_id=name) for name in ("first", "second")]
            agent = durable(made(ModelRouter(models)), retry=ONCE)
            report = await crash_everywhere(run_of(agent), "hello", clock=REAL)
        assert report.result == "Done."
        asked = [one.body["model"] for one in server.requests[:3]]
        assert asked == ["first", "second", "second"]


async def test_a_model_that_keeps_the_conversation_is_told_where_it_was() -> None:
    def script(asked: Asked) -> Any:
        is_first = asked.prompt == "hello" and "function_call_output" not in str(asked.body)
        return SCRIPT[0] if is_first else "Done."

    with ModelServer(script) as server:
        args = {"base_url": server.url, "api_key": "any"}
        model = OpenAIResponsesModel(client_args=args, model_id="m", stateful=True)
        agent = durable(made(model))

        @holdfast.workflow
        async def asks() -> list[Any]:
            said = [str(await agent.invoke_async(question)) for question in ("hello", "and")]
            return [*said, len(agent.messages)]

        report = await crash_everywhere(asks, clock=REAL)
        assert report.result == ["Done.\n", "Done.\n", 0]
        # Replayed or not, each call goes on from the answer before it.
        followed = [asked.body.get("previous_response_id") for asked in server.requests]
        assert followed[0] is None and all(followed[1:3])


async def test_memory_that_is_used_by_tools_is_asked_once() -> None:
    script: list[Any] = [Reply(tool_calls=[("add_memory", {"entries": ["likes tea"]})]), "Done."]
    notes = Notes()
    with ModelServer(script) as server:
        async with AsyncOpenAI(base_url=server.url, api_key="any") as client:
            manager = memory(store=notes, add_tool_config=True, injection=False)
            model = OpenAIModel(client=client, model_id="m")
            agent = durable(made(model, memory_manager=manager))
            report = await crash_everywhere(run_of(agent), "hello", clock=REAL)
    assert report.result == "Done." and report.steps["/add_memory:call_0_0#0"] == 1
    assert set(notes.kept) == {"likes tea"}


async def test_a_durable_agent_may_steer_another() -> None:
    def script(asked: Asked) -> Any:
        if asked.body["model"] == "judge":
            return "yes" if "careful" in str(asked.body["messages"]) else "no"
        searches = [Reply(tool_calls=[("search", {"q": q})]) for q in ("rash", "careful")]
        return [*searches, "Done."][asked.turn]

    with ModelServer(script) as server:
        async with AsyncOpenAI(base_url=server.url, api_key="any") as client:
            judge = durable(made(OpenAIModel(client=client, model_id="judge"), name="judge"))

            class Judges(SteeringHandler):
                async def steer_before_tool(self, *, agent: Any, tool_use: Any, **_: Any) -> Any:
                    said = str(await judge.invoke_async(str(tool_use["input"])))
                    return Proceed(reason="fine") if "yes" in said else Guide(reason="be careful")

            model = OpenAIModel(client=client, model_id="m")
            agent = durable(made(model, plugins=[Judges()]))
            report = await crash_everywhere(run_of(agent), "hello", clock=REAL)
        assert report.result == "Done."
        assert [key for key in report.steps if "search" in key] == ["/search:call_1_0#0"]


async def test_a_model_that_cannot_be_journaled_where_it_is_asked_fails_the_run() -> None:
    """Whoever asks it, in a hook, may go on without an answer, as if it had been a yes."""
    with ModelServer(SCRIPT) as server:
        args = {"base_url": server.url, "api_key": "any"}
        agent = made(OpenAIModel(client_args=args, model_id="m"))

        def judges(event: BeforeToolCallEvent) -> None:
            with contextlib.suppress(Exception):
                Agent(model=event.agent.model, callback_handler=None)("Is it right?")

        agent.hooks.add_callback(BeforeToolCallEvent, judges)
        cause: Any = (await cause_of(durable(agent), "hello")).__cause__  # Strands says that, too
    assert isinstance(cause, holdfast.Unsupported) and "use the async way" in str(cause)


@pytest.mark.parametrize(
    ("part", "given", "cure"),
    [
        ("checkpointing", True, "the journal says where it is"),
        ("context_manager", "auto", "SummarizingConversationManager"),
        ("memory_manager", {}, "injection=False"),
        ("memory_manager", {"store": Notes(extraction=True)}, "without extraction"),
        ("memory_manager", {"add_tool_config": {"wait_for_writes": False}}, "with wait_for_writes"),
        ("plugins", [LLMSteeringHandler("You judge.")], "derive a SteeringHandler"),
        ("plugins", [GoalLoop(goal="be polite", max_attempts=2)], "ask a durable judge"),
        ("plugins", [ContextOffloader(storage=InMemoryStorage())], "let the tool store"),
    ],
)
def test_what_a_run_cannot_journal_is_refused_with_a_cure(part: str, given: Any, cure: str) -> None:
    if isinstance(given, dict):
        given = memory(**({"injection": False} | given if given else {}))
    model = OpenAIModel(client_args={"api_key": "any"}, model_id="m")
    with pytest.raises(holdfast.Unsupported, match=cure):
        durable(made(model, **{part: given}))
