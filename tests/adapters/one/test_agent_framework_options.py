"""What happens to agents of the Microsoft Agent Framework when something fails, and to what their
tools change. `crash_everywhere` replays in a process in which everything is warm."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from agent_framework import (
    Agent,
    FunctionInvocationContext,
    FunctionTool,
    HistoryProvider,
    Message,
    tool,
)
from agent_framework.exceptions import ChatClientException
from agent_framework.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

import holdfast
from holdfast.adapters._shared import UntestedVersion
from holdfast.adapters.agent_framework import durable, hooks
from holdfast.testing import crash_everywhere
from holdfast.testing.model_server import Asked, ModelServer, Reply
from tests.adapters.outcomes import cause_of, result_of

SOON = holdfast.Retry(attempts=3, backoff=timedelta(milliseconds=1))
ONCE = holdfast.Retry(attempts=1)
OVERFLOW = Reply(status=400, text="too long", code="context_length_exceeded")
REAL = holdfast.SystemClock()

Connect = Callable[..., Any]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[Any] = []

    def connect(model: ModelServer, name: str = "m") -> Any:
        clients.append(OpenAIChatCompletionClient(model=name, api_key="any", base_url=model.url))
        return clients[-1]

    yield connect
    for client in clients:
        await client.client.close()


def run_of(agent: Any) -> Any:
    return vars(agent)["__holdfast_workflow__"]


# Models


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_call_of_a_model_is_tried_again_before_the_framework_sees_it(
    connect: Connect, streamed: bool
) -> None:
    busy = Reply(status=429, retry_after=0.01)
    with ModelServer({"hello": [Reply(status=500), busy, "yes"]}) as model:
        agent = durable(Agent(connect(model), name="support"), retry=SOON)

        @holdfast.workflow
        async def asks() -> str:
            if not streamed:
                return (await agent.run("hello")).text
            return (await agent.run("hello", stream=True).get_final_response()).text

        assert await result_of(asks) == "yes"
        assert len(model.requests) == 3
        (key,) = {asked.idempotency_key for asked in model.requests}
        assert key is not None


async def test_the_frameworks_own_error_says_that_tries_are_used_up(connect: Connect) -> None:
    with ModelServer({"hello": Reply(status=503)}) as model:
        agent = durable(Agent(connect(model), name="support"), retry=SOON)
        error = await cause_of(agent, "hello")
        assert isinstance(error, ChatClientException)
        assert len(model.requests) == 3


async def test_what_cannot_succeed_is_not_tried_again(connect: Connect) -> None:
    with ModelServer({"hello": Reply(status=401)}) as model:
        agent = durable(Agent(connect(model), name="support"))
        assert isinstance(await cause_of(agent, "hello"), ChatClientException)
        assert len(model.requests) == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_other_models_are_asked_in_order(connect: Connect, streamed: bool) -> None:
    def answers(asked: Asked) -> Reply:
        return Reply(text="yes") if asked.body["model"] == "third" else Reply(status=503)

    with ModelServer(answers) as model:
        others = ["second", connect(model, "third")]
        agent = durable(Agent(connect(model), name="support"), retry=ONCE, models=others)

        @holdfast.workflow
        async def asks() -> str:
            if not streamed:
                return (await agent.run("hello")).text
            return (await agent.run("hello", stream=True).get_final_response()).text

        assert await result_of(asks) == "yes"
        assert [asked.body["model"] for asked in model.requests] == ["m", "second", "third"]


async def test_a_context_overflow_is_an_error_of_its_own_or_shortened(connect: Connect) -> None:
    with ModelServer({"long": OVERFLOW, "short": "yes"}) as model:
        agent = Agent(connect(model), name="support")
        assert isinstance(await cause_of(durable(agent), "long"), holdfast.ContextOverflow)

        async def shorten(messages: list[Message]) -> list[Message]:
            return [Message("user", ["short"])]

        assert await result_of(durable(agent, on_overflow=shorten), "long") == "yes"


# Tools


def calls(*tools: Any) -> list[Any]:
    return [Reply(tool_calls=tools), "Done."]


async def test_a_tool_is_tried_again_before_the_model_is_told(connect: Connect) -> None:
    keys: list[str] = []

    @tool(approval_mode="never_require")
    async def flaky() -> str:
        """Fails twice."""
        keys.append(holdfast.idempotency_key())
        if len(keys) < 3:
            raise ConnectionError("not yet")
        return "fine"

    with ModelServer(calls(("flaky", {}))) as model:
        agent = durable(Agent(connect(model), name="support", tools=[flaky]), tools={"flaky": SOON})
        assert await result_of(agent, "go") == "Done."
        assert len(keys) == 3 and len(set(keys)) == 1
        assert model.requests[1].body["messages"][-1]["content"] == "fine"


async def test_the_model_is_told_of_a_tool_that_failed_for_good(connect: Connect) -> None:
    @tool(approval_mode="never_require")
    def broken() -> str:
        """Fails."""
        raise ValueError("never")

    with ModelServer(calls(("broken", {}))) as model:
        agent = durable(Agent(connect(model), name="support", tools=[broken]))
        assert await result_of(agent, "go") == "Done."
        assert "Error" in model.requests[1].body["messages"][-1]["content"]


async def test_mistakes_in_the_program_are_not_told_to_the_model(connect: Connect) -> None:
    @tool(approval_mode="never_require")
    async def adds(ctx: FunctionInvocationContext) -> str:
        """Adds a tool, which a replay would not find."""
        assert ctx.tools is not None
        ctx.tools.append(adds)
        return "added"

    with ModelServer(calls(("adds", {}))) as model:
        agent = durable(Agent(connect(model), name="support", tools=[adds]))
        error = await cause_of(agent, "go")
        assert isinstance(error, holdfast.Unsupported) and "from the start" in str(error)
        assert len(model.requests) == 1


async def test_what_a_tool_changes_comes_back(connect: Connect) -> None:
    @tool(approval_mode="never_require")
    async def remember(word: str, ctx: FunctionInvocationContext) -> str:
        """Remembers."""
        assert ctx.session is not None
        ctx.session.state["words"] = [*ctx.session.state.get("words", ()), word]
        ctx.kwargs["notes"].append(word)
        ctx.kwargs["seen"][word] = True
        return "ok"

    script = [
        Reply(tool_calls=[("remember", {"word": "a"})]),
        Reply(tool_calls=[("remember", {"word": "b"})]),
        Reply(text="Done."),
    ]
    with ModelServer(script) as model:
        agent = durable(Agent(connect(model), name="support", tools=[remember]))

        @holdfast.workflow
        async def remembers() -> list[Any]:
            session, given = (
                agent.create_session(),
                {"notes": list[str](), "seen": dict[str, bool]()},
            )
            await agent.run("go", session=session, function_invocation_kwargs=given)
            return [session.state["words"], given]

        report = await crash_everywhere(remembers, clock=REAL)
        assert report.result == [["a", "b"], {"notes": ["a", "b"], "seen": {"a": True, "b": True}}]


# Agents as tools


async def test_agents_as_tools_nest_in_the_call_and_wait_in_it(connect: Connect) -> None:
    deleted: list[str] = []

    @tool(approval_mode="always_require")
    async def delete(path: str) -> str:
        """Deletes."""
        deleted.append(holdfast.idempotency_key())
        return f"deleted {path}"

    def led(asked: Asked) -> Reply:
        if "lead" in asked.prompt:
            return [Reply(tool_calls=[("helper", {"task": "clean"})]), Reply(text="Led.")][
                asked.turn
            ]
        return [Reply(tool_calls=[("delete", {"path": "x"})]), Reply(text="Clean.")][asked.turn]

    with ModelServer(led) as model:
        helper = Agent(connect(model), name="helper", description="helps", tools=[delete])
        boss = durable(Agent(connect(model), name="boss", tools=[helper.as_tool()]))
        answers = {"delete:call_0_0": holdfast.Decision(approved=True)}
        report = await crash_everywhere(run_of(boss), "lead", answers=answers, clock=REAL)
        assert report.result == "Led."
        assert deleted


# People


async def test_calls_without_a_function_are_executed_elsewhere(connect: Connect) -> None:
    elsewhere = FunctionTool(name="lookup", description="Looks up.", func=None, input_model={
        "type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"],
    })  # fmt: skip
    with ModelServer(calls(("lookup", {"q": "x"}))) as model:
        agent = durable(Agent(connect(model), name="support", tools=[elsewhere]))
        answers = {"lookup:call_0_0": "42"}
        report = await crash_everywhere(run_of(agent), "go", answers=answers, clock=REAL)
        assert report.result == "Done."
        assert model.requests[-1].body["messages"][-1]["content"] == "42"


async def test_the_caller_is_asked_if_he_wants_to_be(connect: Connect) -> None:
    @tool(approval_mode="always_require")
    async def delete(path: str) -> str:
        """Deletes."""
        return f"deleted {path}"

    with ModelServer(calls(("delete", {"path": "x"}))) as model:
        agent = durable(Agent(connect(model), name="support", tools=[delete]), approvals=False)

        @holdfast.workflow
        async def asks() -> list[Any]:
            session = agent.create_session()
            response = await agent.run("go", session=session)
            (request,) = response.user_input_requests
            answer = Message("user", [request.to_function_approval_response(approved=True)])
            assert request.function_call is not None
            return [request.function_call.name, (await agent.run(answer, session=session)).text]

        assert (await crash_everywhere(asks, clock=REAL)).result == ["delete", "Done."]


# Sessions and answers


class Archive(HistoryProvider):
    """Keeps messages in the world outside."""

    def __init__(self) -> None:
        super().__init__("archive")
        self.kept: dict[str | None, list[Message]] = {}

    async def get_messages(self, session_id: str | None, **named: Any) -> list[Message]:
        return list(self.kept.get(session_id, ()))

    async def save_messages(self, session_id: str | None, messages: Any, **named: Any) -> None:
        self.kept.setdefault(session_id, []).extend(messages)


async def test_a_history_outside_of_the_session_is_written_once(connect: Connect) -> None:
    archive = Archive()
    with ModelServer(["One.", "Two."]) as model:
        agent = durable(Agent(connect(model), name="support", context_providers=[archive]))

        @holdfast.workflow
        async def converses() -> list[str]:
            session = agent.create_session()
            said = [(await agent.run(text, session=session)).text for text in ("a", "b")]
            return [*said, *(one.text for one in archive.kept[session.session_id])]

        report = await crash_everywhere(converses, clock=REAL)
        assert report.result == ["One.", "Two.", "a", "One.", "b", "Two."]


class Weather(BaseModel):
    sky: str


async def test_a_structured_answer_is_the_result(connect: Connect) -> None:
    with ModelServer({"weather": '{"sky": "blue"}'}) as model:
        options: Any = {"response_format": Weather}
        agent = durable(Agent(connect(model), name="support", default_options=options))
        report = await crash_everywhere(run_of(agent), "weather", clock=REAL)
        assert report.result == Weather(sky="blue")


# What is refused


def test_an_agent_without_a_name_is_refused_or_named(connect: Connect) -> None:
    client = OpenAIChatCompletionClient(model="m", api_key="any", base_url="http://localhost:1")
    with pytest.raises(holdfast.BadArguments, match="name="):
        durable(Agent(client))
    assert run_of(durable(Agent(client), name="named")).name == "named"
    with pytest.raises(TypeError, match="Agent or a Workflow"):
        durable(client)  # type: ignore[type-var]
    with pytest.raises(holdfast.BadArguments, match="BaseChatClient"):
        durable(Agent(object(), name="odd"))  # type: ignore[arg-type]
    with pytest.raises(holdfast.BadArguments, match="models="):
        durable(Agent(client, name="odd"), models=[3])  # type: ignore[list-item]


def test_a_missing_hook_is_an_error_and_a_newer_version_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = OpenAIChatCompletionClient(model="m", api_key="any", base_url="http://localhost:1")
    with monkeypatch.context() as patch:
        patch.setattr(hooks, "TESTED", "1.0.0")
        with pytest.warns(UntestedVersion, match=r"newer than 1\.0\.0"):
            durable(Agent(client, name="a"))
    monkeypatch.setattr(hooks, "_NAMES", ("agent_framework:Agent.no_such_thing",))
    with pytest.raises(holdfast.Unsupported, match="no_such_thing"):
        durable(Agent(client, name="a"))


def test_it_says_what_will_be_journaled(capsys: pytest.CaptureFixture[str]) -> None:
    @tool(approval_mode="always_require")
    def refund() -> None:
        """Gives money back."""

    client = OpenAIChatCompletionClient(model="m", api_key="any", base_url="http://localhost:1")
    durable(Agent(client, name="support", tools=[refund]), explain=True)
    printed = capsys.readouterr().out
    assert "each call of a model by: support" in printed
    assert "before calls of: refund" in printed


async def test_outside_of_runs_an_agent_is_what_it_was(connect: Connect) -> None:
    with ModelServer({"hello": "yes"}) as model:
        agent = durable(Agent(connect(model), name="support"))
        assert (await agent.run("hello")).text == "yes"
