"""Agents of Pydantic AI inside of runs: streams, failures, people, threads, bad input."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pydantic
import pytest
from pydantic_ai import Agent, FunctionToolset, ModelRetry, RunContext
from pydantic_ai.exceptions import ModelHTTPError, ModelServerError
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider

import holdfast
from holdfast.adapters.pydantic_ai import durable
from holdfast.testing import Environment
from holdfast.testing.model_server import Asked, Line, ModelServer, Reply

SOON = holdfast.Retry(attempts=3, backoff=timedelta(milliseconds=1))
ONE_CALL: list[Line] = [Reply(tool_calls=[("act", {})]), "done"]

Connect = Callable[..., OpenAIChatModel]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    found: list[OpenAIChatModel] = []

    def connect(server: ModelServer, name: str = "m") -> OpenAIChatModel:
        provider = OpenAIProvider(base_url=server.url, api_key="any")
        found.append(OpenAIChatModel(name, provider=provider))
        return found[-1]

    yield connect
    for model in found:
        await model.client.close()


async def result_of(workflow: Any, *args: Any) -> Any:
    async with holdfast.Holdfast(":memory:", workflows=[workflow]) as app:
        run = await app.start(workflow, *args)
        return await asyncio.wait_for(run.result(), 120)


# Runs of their own


class City(pydantic.BaseModel):
    name: str
    people: int


async def test_a_run_of_its_own_has_the_agents_name_and_its_typed_output(connect: Connect) -> None:
    script: list[Line] = [Reply(tool_calls=[("final_result", {"name": "Rome", "people": 3})])]
    with ModelServer(script) as server:
        agent = durable(Agent(connect(server), name="cities", output_type=City))
        async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
            run = await app.start(agent, "which")
            assert await run.result() == City(name="Rome", people=3)
            assert (await app.row(run.id)).workflow == "cities"


async def test_a_conversation_goes_on_with_the_messages_of_the_last_run(connect: Connect) -> None:
    with ModelServer(["first", "second"]) as server:
        agent = durable(Agent(connect(server), name="talks"))

        @holdfast.step
        async def save(messages: bytes) -> bytes:
            return messages

        @holdfast.workflow
        async def first() -> bytes:
            result = await agent.run("one")
            saved = await save(result.all_messages_json())  # would diverge if it were not the same
            await holdfast.sleep(timedelta(hours=1))
            return saved

        async with Environment([first, agent]) as env:  # type: ignore[list-item]
            run = await env.start(first)
            await env.settle()
            await env.crash()
            await env.advance(timedelta(hours=2))
            saved = await env.result(run)
            history = pydantic.TypeAdapter(list[Any]).validate_json(saved)
            again = await env.app.start(agent, "two", message_history=history)
            assert await env.result(again) == "second"
        assert len(server.requests) == 2


# Streams


async def test_a_stream_is_read_while_it_comes(connect: Connect) -> None:
    heard: list[str] = []
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(asked: Asked, piece: int) -> None:
        if piece == 3:  # the role, "one", "two", then this
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

    with ModelServer(["one\ntwo\nthree\nfour"], on_piece=hold) as server:
        agent = durable(Agent(connect(server), name="speaks"))

        @holdfast.workflow
        async def listens() -> str:
            async with agent.run_stream("hello") as stream:
                async for text in stream.stream_text(delta=True):
                    heard.append(text)
                    go_on.set()
                return await stream.get_output()

        assert await result_of(listens) == "one\ntwo\nthree\nfour"
    assert heard == ["one\n", "two\n", "three\n", "four"]


async def test_a_stream_that_breaks_in_its_middle_is_not_begun_again(connect: Connect) -> None:
    def cut(asked: Asked, piece: int) -> None:
        if piece == 4:
            raise ConnectionError("cut")

    with ModelServer(["one\ntwo\nthree\nfour"], on_piece=cut) as server:
        agent = durable(Agent(connect(server), name="speaks"), retry=SOON)

        @holdfast.workflow
        async def listens() -> str:
            async with agent.run_stream("hello") as stream:
                return await stream.get_output()

        with pytest.raises(holdfast.RunFailed, match="broke"):
            await result_of(listens)
        assert len(server.requests) == 1


async def test_all_events_come_in_one_stream_too(connect: Connect) -> None:
    with ModelServer(ONE_CALL) as server:
        agent = Agent(connect(server), name="acts")

        @agent.tool_plain
        def act() -> str:
            return "acted"

        agent = durable(agent)

        @holdfast.workflow
        async def listens() -> list[str]:
            async with agent.run_stream_events("go") as events:
                return [event.event_kind async for event in events]

        kinds = await result_of(listens)
        assert kinds.count("function_tool_result") == 1 and kinds[-1] == "agent_run_result"


# Failures


async def test_retries_are_the_steps_and_come_before_the_frameworks(connect: Connect) -> None:
    with ModelServer({"go": [Reply(status=500), Reply(status=429), "yes"]}) as server:
        agent = durable(Agent(connect(server), name="asks"), retry=SOON)
        assert await result_of(agent, "go") == "yes"
        assert len(server.requests) == 3  # and not three times as many, by the client's own
        (key,) = {asked.idempotency_key for asked in server.requests}
        assert key is not None


async def test_an_error_that_stays_is_the_frameworks_own(connect: Connect) -> None:
    with ModelServer({"go": Reply(status=500)}) as server:
        agent = durable(Agent(connect(server), name="asks"), retry=SOON)

        @holdfast.workflow
        async def asks() -> int:
            try:
                await agent.run("go")
            except ModelHTTPError as error:
                return error.status_code if isinstance(error, ModelServerError) else -1
            return 0

        assert await result_of(asks) == 500
        assert len(server.requests) == 3


async def test_other_models_are_asked_in_order(connect: Connect) -> None:
    def script(asked: Asked) -> Reply:
        return Reply(text="yes") if asked.body["model"] == "third" else Reply(status=401)

    with ModelServer(script) as server:
        others = [connect(server, "second"), connect(server, "third")]
        agent = durable(Agent(connect(server, "first"), name="asks"), models=others)
        assert await result_of(agent, "go") == "yes"
        assert [asked.body["model"] for asked in server.requests] == ["first", "second", "third"]

        @holdfast.workflow
        async def streams() -> str:
            async with agent.run_stream("go") as stream:
                return await stream.get_output()

        assert await result_of(streams) == "yes"


OVERFLOW = Reply(status=400, text="too long", code="context_length_exceeded")


async def test_an_overflow_is_an_error_of_its_own_and_not_tried_again(connect: Connect) -> None:
    with ModelServer({"go": OVERFLOW}) as server:
        agent = durable(Agent(connect(server), name="asks"), retry=SOON)

        @holdfast.workflow
        async def asks() -> str:
            try:
                await agent.run("go")
            except holdfast.ContextOverflow:
                return "overflow"
            return "fits"

        assert await result_of(asks) == "overflow"
        assert len(server.requests) == 1


async def test_after_an_overflow_what_the_hook_gives_is_sent(connect: Connect) -> None:
    def script(asked: Asked) -> Reply:
        return OVERFLOW if len(asked.body["messages"]) > 1 else Reply(text="yes")

    with ModelServer(script) as server:
        agent = durable(
            Agent(connect(server), name="asks", system_prompt="be long"),
            on_overflow=lambda messages: [ModelRequest.user_text_prompt("be short")],
        )
        assert await result_of(agent, "go") == "yes"
        assert len(server.requests) == 2


async def test_tools_have_policies_of_their_own_and_a_key(connect: Connect) -> None:
    script: list[Line] = [Reply(tool_calls=[("flaky", {}), ("brittle", {})]), "done"]
    tries: list[str] = []
    with ModelServer(script) as server:
        agent = Agent(connect(server), name="acts")

        @agent.tool_plain
        async def flaky() -> str:
            tries.append(holdfast.idempotency_key())
            if len(tries) < 3:
                raise ConnectionError("not yet")
            return "at last"

        @agent.tool_plain
        async def brittle() -> str:
            raise ModelRetry("say please")  # for the model, and not the policy's to repeat

        agent = durable(agent, tools={"flaky": SOON})
        assert await result_of(agent, "go") == "done"
    assert len(tries) == 3 and len(set(tries)) == 1


async def test_a_result_that_cannot_be_journaled_is_refused_with_a_cure(connect: Connect) -> None:
    with ModelServer(ONE_CALL) as server:
        agent = Agent(connect(server), name="acts")

        @agent.tool_plain
        def act() -> object:
            return object()

        with pytest.raises(holdfast.RunFailed, match="return text, numbers"):
            await result_of(durable(agent), "go")


# Tools


async def test_parallel_tools_run_at_the_same_time(connect: Connect) -> None:
    script: list[Line] = [Reply(tool_calls=[("meet", {}), ("meet", {})]), "met"]
    with ModelServer(script) as server:
        agent = Agent(connect(server), name="meets")
        both = asyncio.Barrier(2)

        @agent.tool_plain
        async def meet() -> str:
            await both.wait()
            return "here"

        assert await result_of(durable(agent), "go") == "met"


async def test_toolsets_without_an_id_and_those_of_one_run_are_journaled(connect: Connect) -> None:
    script: list[Line] = [Reply(tool_calls=[("one", {}), ("two", {})]), "done"]
    with ModelServer(script) as server:
        mine: FunctionToolset[Any] = FunctionToolset([named("one")])
        agent = durable(Agent(connect(server), name="acts", toolsets=[mine]))

        @holdfast.workflow
        async def acts() -> str:
            return (await agent.run("go", toolsets=[FunctionToolset([named("two")])])).output

        async with holdfast.Holdfast(":memory:", workflows=[acts]) as app:
            run = await app.start(acts)
            assert await run.result() == "done"
            keys = [entry.key.rpartition("/")[2] for entry in await app.history(run.id)]
            assert {"acts.one:call_0_0#0", "acts.two:call_0_1#0"} <= set(keys)


def named(name: str) -> Callable[[], str]:
    def tool() -> str:
        return name

    tool.__name__ = name
    return tool


async def test_models_of_one_run_are_journaled_too(connect: Connect) -> None:
    with ModelServer(["never"]) as server:
        agent = durable(Agent(connect(server), name="asks"))

        @holdfast.workflow
        async def asks() -> list[str]:
            given = await agent.run("go", model=TestModel(custom_output_text="given"))
            with agent.override(model=TestModel(custom_output_text="overridden")):
                return [given.output, (await agent.run("go")).output]

        assert await result_of(asks) == ["given", "overridden"]
        assert not server.requests


# Threads


def test_a_def_workflow_uses_run_sync() -> None:
    agent = Agent(TestModel(custom_output_text="done"), name="acts")
    where: list[str | None] = []

    @agent.tool_plain
    def act() -> str:
        where.append(holdfast.current_run())
        return "acted"

    agent = durable(agent)

    @holdfast.workflow
    def acts() -> str:
        return agent.run_sync("go").output

    app = holdfast.Holdfast(":memory:", workflows=[acts])
    with app.sync() as door:
        run = door.start(acts)
        assert run.result() == "done"
        assert where == [run.id]


async def test_sync_functions_of_the_agent_replay(connect: Connect) -> None:
    with ModelServer(["yes"]) as server:
        agent = Agent(connect(server), name="asks")

        @agent.instructions
        def today(ctx: RunContext[object]) -> str:
            return f"It is {object()}."  # another text each time

        agent = durable(agent)

        @holdfast.workflow
        async def asks() -> str:
            output = (await agent.run("go")).output
            await holdfast.sleep(timedelta(hours=1))
            return output

        async with Environment([asks]) as env:
            run = await env.start(asks)
            await env.settle()
            await env.crash()
            await env.advance(timedelta(hours=2))
            assert await env.result(run) == "yes"
        assert len(server.requests) == 1


async def test_a_run_that_began_with_warm_clients_goes_on_with_new_ones(connect: Connect) -> None:
    with ModelServer(["yes"]) as server:
        agents = [durable(Agent(connect(server), name="asks"))]

        @holdfast.workflow
        async def asks(question: str, hours: int) -> list[str]:
            outputs = [(await agents[-1].run(question)).output]
            await holdfast.sleep(timedelta(hours=hours))
            return [*outputs, (await agents[-1].run(question)).output]

        async with Environment([asks]) as env:
            assert await env.result(await env.start(asks, "first", 0)) == ["yes", "yes"]
            run = await env.start(asks, "second", 1)
            await env.settle()
            await env.crash()
            agents.append(durable(Agent(connect(server), name="asks")))
            await env.advance(timedelta(hours=2))
            assert await env.result(run) == ["yes", "yes"]
        assert [asked.prompt for asked in server.requests] == ["first"] * 2 + ["second"] * 2
