"""What happens to agents of the OpenAI Agents SDK when something fails, or somebody is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    ComputerTool,
    MaxTurnsExceeded,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.sandbox import SandboxAgent

import holdfast
from holdfast.adapters._shared import UntestedVersion
from holdfast.adapters.openai_agents import durable, hooks
from holdfast.testing.model_server import Asked, ModelServer, Reply
from tests.adapters.outcomes import cause_of, result_of

set_tracing_disabled(True)

SOON = holdfast.Retry(attempts=3, backoff=timedelta(milliseconds=1))
ONCE = holdfast.Retry(attempts=1)
OVERFLOW = Reply(status=400, text="too long", code="context_length_exceeded")

Connect = Callable[..., Any]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[openai.AsyncOpenAI] = []

    def connect(model: ModelServer, name: str = "m") -> Any:
        clients.append(openai.AsyncOpenAI(base_url=model.url, api_key="any"))
        return OpenAIChatCompletionsModel(name, clients[-1])

    yield connect
    for client in clients:
        await client.close()


def calls(*tools: Any) -> list[Any]:
    return [Reply(tool_calls=tools), "Done."]


# Models


async def test_a_call_of_a_model_is_tried_again_under_the_same_key(connect: Connect) -> None:
    busy = Reply(status=429, retry_after=0.01)
    with ModelServer({"hello": [Reply(status=500), busy, "yes"]}) as model:
        agent = durable(Agent(name="support", model=connect(model)), retry=SOON)
        assert await result_of(agent, "hello") == "yes"
        assert len(model.requests) == 3
        assert len({asked.idempotency_key for asked in model.requests}) == 1


async def test_a_model_that_fails_for_good_raises_its_own_error(connect: Connect) -> None:
    with ModelServer({"hello": Reply(status=500)}) as model:
        agent = durable(Agent(name="support", model=connect(model)), retry=SOON)
        assert isinstance(await cause_of(agent, "hello"), openai.InternalServerError)
        assert len(model.requests) == 3


async def test_other_models_are_asked_in_order(connect: Connect) -> None:
    def script(asked: Asked) -> Any:
        return "yes" if asked.body["model"] == "third" else Reply(status=500)

    with ModelServer(script) as model:
        others = [connect(model, "second"), connect(model, "third"), connect(model, "fourth")]
        agent = durable(Agent(name="support", model=connect(model)), retry=ONCE, models=others)
        assert await result_of(agent, "hello") == "yes"
        assert [asked.body["model"] for asked in model.requests] == ["m", "second", "third"]


async def test_other_models_are_asked_for_a_stream_too(connect: Connect) -> None:
    def script(asked: Asked) -> Any:
        return "yes" if asked.body["model"] == "second" else Reply(status=500)

    with ModelServer(script) as model:
        others = [connect(model, "second")]
        agent = durable(Agent(name="support", model=connect(model)), retry=ONCE, models=others)

        @holdfast.workflow
        async def asks() -> Any:
            result = Runner.run_streamed(agent, "hello")
            async for _ in result.stream_events():
                pass
            return result.final_output

        assert await result_of(asks) == "yes"


async def test_a_context_overflow_is_its_own_error(connect: Connect) -> None:
    with ModelServer({"hello": OVERFLOW}) as model:
        agent = durable(Agent(name="support", model=connect(model)))
        assert isinstance(await cause_of(agent, "hello"), holdfast.ContextOverflow)
        assert len(model.requests) == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_what_is_too_long_is_made_shorter(connect: Connect, streamed: bool) -> None:
    async def shorten(input: Any) -> Any:
        return [{"role": "user", "content": "brief"}]

    with ModelServer({"hello": OVERFLOW, "brief": "yes"}) as model:
        agent = durable(Agent(name="support", model=connect(model)), on_overflow=shorten)

        @holdfast.workflow
        async def asks() -> Any:
            if not streamed:
                return (await Runner.run(agent, "hello")).final_output
            result = Runner.run_streamed(agent, "hello")
            async for _ in result.stream_events():
                pass
            return result.final_output

        assert await result_of(asks) == "yes"
        assert [asked.prompt for asked in model.requests] == ["hello", "brief"]


async def test_a_stream_that_breaks_in_its_middle_is_not_begun_again(connect: Connect) -> None:
    def cut(asked: Asked, piece: int) -> None:
        if piece == 3:
            raise ConnectionError("cut")

    with ModelServer(["one\ntwo\nthree"], on_piece=cut) as model:
        agent = durable(Agent(name="support", model=connect(model)), retry=SOON)

        @holdfast.workflow
        async def asks() -> Any:
            async for _ in Runner.run_streamed(agent, "hello").stream_events():
                pass

        assert "broke in its middle" in str(await cause_of(asks))
        assert len(model.requests) == 1


async def test_a_stream_is_read_while_it_comes(connect: Connect) -> None:
    heard: list[str] = []
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(asked: Asked, piece: int) -> None:
        if piece == 2:  # the role, then "one"
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

    with ModelServer(["one\ntwo\nthree"], on_piece=hold) as model:
        agent = durable(Agent(name="support", model=connect(model)))

        @holdfast.workflow
        async def asks() -> Any:
            async for event in Runner.run_streamed(agent, "hello").stream_events():
                data: Any = getattr(event, "data", None)
                if getattr(data, "type", "") == "response.output_text.delta":
                    heard.append(data.delta)
                    go_on.set()  # what came so far was heard while the rest was yet to come
            return heard

        assert await result_of(asks) == ["one\n", "two\n", "three"]


# Tools


async def test_a_tool_is_tried_again_before_the_sdk_sees_its_failure(connect: Connect) -> None:
    keys: list[str] = []

    @function_tool
    async def flaky() -> str:
        keys.append(holdfast.idempotency_key())
        if len(keys) < 3:
            raise ConnectionError("not yet")
        return "at last"

    with ModelServer(calls(("flaky", {}))) as model:
        agent = durable(
            Agent(name="support", model=connect(model), tools=[flaky]), tools={"flaky": SOON}
        )
        assert await result_of(agent, "hello") == "Done."
        assert len(keys) == 3 and len(set(keys)) == 1
        assert model.requests[1].body["messages"][-1]["content"] == "at last"


async def test_the_model_is_told_of_a_tool_that_failed_for_good(connect: Connect) -> None:
    tries: list[int] = []

    @function_tool(failure_error_function=lambda ctx, error: f"no: {error}")
    async def broken() -> str:
        tries.append(1)
        raise ValueError("bad")

    with ModelServer(calls(("broken", {}))) as model:
        agent = durable(Agent(name="support", model=connect(model), tools=[broken]))
        assert await result_of(agent, "hello") == "Done."
        assert len(tries) == 1
        assert model.requests[1].body["messages"][-1]["content"] == "no: bad"


async def test_the_model_is_told_at_once_that_its_arguments_are_wrong(connect: Connect) -> None:
    """They would be wrong on the next try, too."""

    @function_tool
    async def search(q: str) -> str:
        return f"found {q}"

    with ModelServer(calls(("search", {"query": "a"}))) as model:
        agent = durable(Agent(name="support", model=connect(model), tools=[search]))
        async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
            run = await app.start(agent, "hello")
            assert await asyncio.wait_for(run.result(), 120) == "Done."
            tries = [e.attempt for e in await app.history(run.id) if e.key.endswith("/search#0")]
        assert tries == [1]
        assert "An error occurred" in model.requests[1].body["messages"][-1]["content"]


async def test_a_result_that_cannot_be_encoded_names_the_cure(connect: Connect) -> None:
    class Handle:
        pass

    @function_tool
    async def opens() -> Any:
        return Handle()

    with ModelServer(calls(("opens", {}))) as model:
        agent = durable(Agent(name="support", model=connect(model), tools=[opens]))
        cause: BaseException | None = await cause_of(agent, "hello")
        while cause is not None and not isinstance(cause, holdfast.NotEncodable):
            cause = cause.__cause__
        assert cause is not None and "register" in str(cause) and "opens" in str(cause)
        assert len(model.requests) == 1  # and is not told to the model


async def test_the_sdks_own_limits_hold(connect: Connect) -> None:
    with ModelServer([Reply(tool_calls=[("search", {"q": "a"})])]) as model:

        @function_tool
        async def search(q: str) -> str:
            return q

        agent = durable(Agent(name="support", model=connect(model), tools=[search]))
        assert isinstance(await cause_of(agent, "hello", None, 2), MaxTurnsExceeded)


# Approvals


def refunds(connect: Connect, model: ModelServer, done: list[str]) -> Any:
    @function_tool(needs_approval=True)
    async def refund(order: str) -> str:
        done.append(order)
        return f"refunded {order}"

    return durable(Agent(name="support", model=connect(model), tools=[refund]))


@pytest.mark.parametrize("streamed", [False, True])
async def test_calls_are_approved_one_by_one(connect: Connect, streamed: bool) -> None:
    done: list[str] = []
    script = calls(("refund", {"order": "a"}), ("refund", {"order": "b"}))
    with ModelServer(script) as model:
        agent = refunds(connect, model, done)

        @holdfast.workflow
        async def asks() -> Any:
            if not streamed:
                return (await Runner.run(agent, "hello")).final_output
            result = Runner.run_streamed(agent, "hello")
            names = [getattr(e, "name", "") async for e in result.stream_events()]
            assert names.count("tool_output") == 2
            return result.final_output

        async with holdfast.Holdfast(":memory:", workflows=[asks]) as app:
            run = await app.start(asks)
            no = holdfast.Decision(approved=False, comment="not b")
            await run.resolve("refund:call_0_1", no, early=True)
            await run.resolve("refund:call_0_0", holdfast.Decision(approved=True), early=True)
            assert await asyncio.wait_for(run.result(), 120) == "Done."
        assert done == ["a"]
        told = [message["content"] for message in model.requests[1].body["messages"][-2:]]
        assert told == ["refunded a", "not b"]


async def test_without_approvals_the_caller_is_asked(connect: Connect) -> None:
    done: list[str] = []
    with ModelServer(calls(("refund", {"order": "a"}))) as model:
        agent = durable(refunds(connect, model, done), approvals=False)

        @holdfast.workflow
        async def asks() -> Any:
            result = await Runner.run(agent, "hello")
            state = result.to_state()
            state.approve(result.interruptions[0])
            return (await Runner.run(agent, state)).final_output

        assert await result_of(asks) == "Done."
        assert done == ["a"]


# Bad input


@pytest.mark.parametrize("thing", [None, "agent", object(), Agent])
def test_what_is_no_agent_is_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"an agents\.Agent"):
        durable(thing)


def test_an_agent_needs_a_name() -> None:
    with pytest.raises(holdfast.BadArguments, match="give it one"):
        durable(Agent(name=" "))


def test_models_are_names_or_models() -> None:
    odd: Any = [3]
    with pytest.raises(holdfast.BadArguments, match="names, or objects"):
        durable(Agent(name="support"), models=odd)


def test_a_tool_whose_calls_cannot_be_journaled_is_refused() -> None:
    odd: Any = object()
    with pytest.raises(holdfast.Unsupported, match="function_tool"):
        durable(Agent(name="support", tools=[ComputerTool(odd)]))


def test_an_agent_that_works_in_a_sandbox_is_refused() -> None:
    with pytest.raises(holdfast.Unsupported, match="Run it in a tool"):
        durable(Agent(name="boss", handoffs=[SandboxAgent(name="coder")]))


def test_a_missing_hook_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hooks.HOOKS.found, "agents.run:AgentRunner.run", None)
    with pytest.raises(holdfast.Unsupported, match=r"no agents\.run:AgentRunner\.run"):
        durable(Agent(name="support"))


def test_a_newer_version_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks.HOOKS, "tested", "0.1.0")
    with pytest.warns(UntestedVersion, match="newer than 0.1.0"):
        durable(Agent(name="support"))


def test_explain_says_what_will_be_journaled(capsys: pytest.CaptureFixture[str]) -> None:
    @function_tool(needs_approval=True)
    async def refund() -> str:
        return ""

    billing = Agent(name="billing", tools=[refund])
    agent = Agent(name="support", handoffs=[billing], tools=[billing.as_tool("helper", "")])
    durable(agent, models=["other"], explain=True)
    said = capsys.readouterr().out
    for part in ("support, billing", "refund", "helper", "other", "guardrails"):
        assert part in said
