"""What happens to agents of AWS Strands when something fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import openai
import pytest
from strands import Agent, tool
from strands.agent.conversation_manager import (
    NullConversationManager,
    SummarizingConversationManager,
)
from strands.models.openai import OpenAIModel
from strands.types.exceptions import ContextWindowOverflowException, ModelThrottledException

import holdfast
from holdfast.adapters.strands import durable
from holdfast.testing import Environment
from holdfast.testing.model_server import Asked, ModelServer, Reply
from tests.adapters.outcomes import cause_of, result_of

SOON = holdfast.Retry(attempts=3, backoff=timedelta(milliseconds=1))
ONCE = holdfast.Retry(attempts=1)
OVERFLOW = Reply(status=400, text="too long", code="context_length_exceeded")
SAID: Any = [{"role": role, "content": [{"text": "so"}]} for role in ("user", "assistant") * 4]

Connect = Callable[..., Any]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[openai.AsyncOpenAI] = []

    def connect(server: ModelServer, name: str = "m") -> Any:
        clients.append(openai.AsyncOpenAI(base_url=server.url, api_key="any"))
        return OpenAIModel(client=clients[-1], model_id=name)

    yield connect
    for client in clients:
        await client.close()


def made(model: Any, **options: Any) -> Agent:
    return Agent(name="support", model=model, callback_handler=None, **options)


def calls(*tools: Any) -> list[Any]:
    return [Reply(tool_calls=tools), "Done."]


# Models


async def test_a_call_of_a_model_is_tried_again_under_the_same_key(connect: Connect) -> None:
    busy = Reply(status=429, retry_after=0.01)
    with ModelServer({"hello": [Reply(status=500), busy, "yes"]}) as server:
        agent = durable(made(connect(server)), retry=SOON)
        assert await result_of(agent, "hello") == "yes"
        assert len(server.requests) == 3
        assert len({asked.idempotency_key for asked in server.requests}) == 1


async def test_a_client_for_each_call_does_not_try_again_either() -> None:
    with ModelServer({"hello": [Reply(status=500), Reply(status=500), "yes"]}) as server:
        args = {"base_url": server.url, "api_key": "any"}
        agent = durable(made(OpenAIModel(client_args=args, model_id="m")), retry=ONCE)
        assert isinstance(await cause_of(agent, "hello"), openai.InternalServerError)
        assert [asked.idempotency_key is not None for asked in server.requests] == [True]


async def test_strands_tries_again_when_the_steps_tries_are_used_up(connect: Connect) -> None:
    with ModelServer({"hello": Reply(status=429, retry_after=0.01)}) as server:
        agent = durable(made(connect(server), retry_strategy=None), retry=SOON)
        assert isinstance(await cause_of(agent, "hello"), ModelThrottledException)
        assert len(server.requests) == 3


async def test_other_models_are_asked_in_order(connect: Connect) -> None:
    def script(asked: Asked) -> Any:
        return "yes" if asked.body["model"] == "third" else Reply(status=500)

    with ModelServer(script) as server:
        others = [connect(server, "second"), connect(server, "third"), connect(server, "fourth")]
        agent = durable(made(connect(server)), retry=ONCE, models=others)
        assert await result_of(agent, "hello") == "yes"
        assert [asked.body["model"] for asked in server.requests] == ["m", "second", "third"]


async def test_a_context_overflow_is_its_own_error(connect: Connect) -> None:
    with ModelServer({"hello": OVERFLOW}) as server:
        agent = durable(made(connect(server), conversation_manager=NullConversationManager()))
        cause = await cause_of(agent, "hello")
        assert isinstance(cause, ContextWindowOverflowException)
        found: BaseException | None = cause
        while found is not None and not isinstance(found, holdfast.ContextOverflow):
            found = found.__cause__
        assert found is not None and len(server.requests) == 1


async def test_what_is_too_long_is_made_shorter(connect: Connect) -> None:
    async def shorten(messages: Any) -> Any:
        return [{"role": "user", "content": [{"text": "brief"}]}]

    with ModelServer({"hello": OVERFLOW, "brief": "yes"}) as server:
        agent = durable(made(connect(server)), on_overflow=shorten)
        assert await result_of(agent, "hello") == "yes"
        assert [asked.prompt for asked in server.requests] == ["hello", "brief"]


async def test_the_conversation_manager_trims_what_is_too_long(connect: Connect) -> None:
    def script(asked: Asked) -> Any:
        return OVERFLOW if len(asked.body["messages"]) > 5 else "yes"

    with ModelServer(script) as server:
        agent: Any = durable(made(connect(server), messages=list(SAID)))
        assert await result_of(agent, "hello") == "yes"
        assert len(agent.messages) == 8  # it is the run's conversation that was trimmed


async def test_a_summary_is_made_once() -> None:
    def script(asked: Asked) -> Any:
        if "summarize" in str(asked.body["messages"][-1]):
            return "In short."
        return OVERFLOW if len(asked.body["messages"]) > 6 else "yes"

    with ModelServer(script) as server:
        manager = SummarizingConversationManager(preserve_recent_messages=2, summary_ratio=0.8)
        args = {"base_url": server.url, "api_key": "any"}
        model = OpenAIModel(client_args=args, model_id="m")
        agent: Any = durable(made(model, messages=list(SAID), conversation_manager=manager))

        @holdfast.workflow
        async def asks() -> Any:
            await agent.invoke_async("hello")
            await holdfast.sleep(timedelta(hours=1))
            await agent.invoke_async("again")
            return [message["content"][0]["text"] for message in agent.messages]

        async with Environment([asks]) as env:
            run = await env.start(asks)
            await env.settle()
            await env.crash()
            await env.advance(timedelta(hours=2))
            said = await env.result(run)
        assert said[0] == "In short." and said[-4:] == ["hello", "yes", "again", "yes"]
        assert len(server.requests) == 4  # too long, the summary, and the two answers


async def test_a_stream_that_breaks_in_its_middle_is_not_begun_again(connect: Connect) -> None:
    def cut(asked: Asked, piece: int) -> None:
        if piece == 3:
            raise ConnectionError("cut")

    with ModelServer(["one\ntwo\nthree"], on_piece=cut) as server:
        agent = durable(made(connect(server)), retry=SOON)
        assert "broke in its middle" in str(await cause_of(agent, "hello"))
        assert len(server.requests) == 1


async def test_a_stream_is_read_while_it_comes(connect: Connect) -> None:
    heard: list[str] = []
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(asked: Asked, piece: int) -> None:
        if piece == 2:  # the role, then "one"
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

    with ModelServer(["one\ntwo\nthree"], on_piece=hold) as server:
        agent = durable(made(connect(server)))

        @holdfast.workflow
        async def asks() -> Any:
            async for event in agent.stream_async("hello"):
                if "data" in event:
                    heard.append(event["data"])
                    go_on.set()  # what came so far was heard while the rest was yet to come
            return heard

        assert await result_of(asks) == ["one\n", "two\n", "three"]


# Tools


async def test_a_tool_is_tried_again_before_strands_sees_its_failure(connect: Connect) -> None:
    keys: list[str] = []

    @tool
    async def flaky() -> str:
        """Fails."""
        keys.append(holdfast.idempotency_key())
        if len(keys) < 3:
            raise ConnectionError("not yet")
        return "at last"

    with ModelServer(calls(("flaky", {}))) as server:
        agent = durable(made(connect(server), tools=[flaky]), tools={"flaky": SOON})
        assert await result_of(agent, "hello") == "Done."
        assert len(keys) == 3 and len(set(keys)) == 1
        assert "at last" in str(server.requests[1].body["messages"][-1])


async def test_the_model_is_told_of_a_tool_that_failed_for_good(connect: Connect) -> None:
    tries: list[int] = []

    @tool
    def broken() -> str:
        """Fails."""
        tries.append(1)
        raise LookupError("bad")

    with ModelServer(calls(("broken", {}))) as server:
        agent = durable(made(connect(server), tools=[broken]))
        assert await result_of(agent, "hello") == "Done."
        assert len(tries) == 1
        assert "Error: LookupError - bad" in str(server.requests[1].body["messages"][-1])


async def test_a_result_that_cannot_be_encoded_names_the_cure(connect: Connect) -> None:
    @tool
    async def opens() -> Any:
        """Opens."""
        return {"status": "success", "content": [{"json": object()}]}

    with ModelServer(calls(("opens", {}))) as server:
        agent = durable(made(connect(server), tools=[opens]))
        cause: BaseException | None = await cause_of(agent, "hello")
        while cause is not None and not isinstance(cause, holdfast.NotEncodable):
            cause = cause.__cause__
        assert cause is not None and "register" in str(cause) and "opens" in str(cause)
        assert len(server.requests) == 1  # and is not told to the model


async def test_parallel_tools_run_at_once(connect: Connect) -> None:
    met = asyncio.Barrier(2)

    @tool
    async def meet(who: str) -> str:
        """Meets."""
        await asyncio.wait_for(met.wait(), 120)
        return who

    with ModelServer(calls(("meet", {"who": "a"}), ("meet", {"who": "b"}))) as server:
        agent = durable(made(connect(server), tools=[meet]))
        assert await result_of(agent, "hello") == "Done."


async def test_what_a_tool_streams_comes_while_it_runs(connect: Connect) -> None:
    go_on = asyncio.Event()

    @tool
    async def counts() -> Any:
        """Counts."""
        yield {"at": 1}
        await go_on.wait()
        yield "counted"

    with ModelServer(calls(("counts", {}))) as server:
        agent = durable(made(connect(server), tools=[counts]))

        @holdfast.workflow
        async def asks() -> Any:
            heard = []
            async for event in agent.stream_async("hello"):
                if "tool_stream_event" in event:
                    heard.append(event["tool_stream_event"]["data"])
                    go_on.set()
            return heard

        assert await result_of(asks) == [{"at": 1}, "counted"]
        assert "counted" in str(server.requests[1].body["messages"][-1])
