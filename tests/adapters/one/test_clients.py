"""The clients of OpenAI and Anthropic: each call inside a run is a step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import anthropic
import openai
import pytest

import holdfast
from holdfast.adapters.anthropic import durable as durable_anthropic
from holdfast.adapters.openai import durable
from holdfast.testing import Environment
from holdfast.testing.model_server import Asked, ModelServer, Reply

SOON = holdfast.Retry(attempts=3, backoff=timedelta(milliseconds=1))
HELLO: list[Any] = [{"role": "user", "content": "hello"}]


Connect = Callable[[ModelServer], openai.AsyncOpenAI]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[openai.AsyncOpenAI] = []

    def connect(model: ModelServer) -> openai.AsyncOpenAI:
        client = openai.AsyncOpenAI(base_url=model.url, api_key="any")
        clients.append(durable(client, retry=SOON))
        return clients[-1]

    yield connect
    for client in clients:
        await client.close()


async def result_of(*workflows: holdfast.Workflow[[], Any]) -> Any:
    async with holdfast.Holdfast(":memory:", workflows=workflows) as app:
        run = await app.start(workflows[0])
        return await asyncio.wait_for(run.result(), 120)


async def test_a_call_is_replayed_and_not_made_again(connect: Connect) -> None:
    with ModelServer(["first"]) as model:
        client = connect(model)

        @holdfast.workflow
        async def asks() -> str:
            answer = await client.responses.create(model="m", input="hello")
            await holdfast.sleep(timedelta(hours=1))
            return answer.output_text

        async with Environment([asks]) as env:
            run = await env.start(asks)
            await env.settle()
            await env.crash()
            await env.advance(timedelta(hours=2))
            assert await env.result(run) == "first"
        assert len(model.requests) == 1


async def test_what_can_succeed_later_is_tried_again_under_the_same_key(connect: Connect) -> None:
    with ModelServer(
        {"hello": [Reply(status=500), Reply(status=429, retry_after=0.01), "yes"]}
    ) as model:
        client = connect(model)

        @holdfast.workflow
        async def asks() -> str | None:
            answer = await client.chat.completions.create(model="m", messages=HELLO)
            return answer.choices[0].message.content

        assert await result_of(asks) == "yes"
        keys = {asked.idempotency_key for asked in model.requests}
        assert len(model.requests) == 3 and len(keys) == 1 and None not in keys


async def test_a_call_that_fails_for_good_raises_the_errors_of_the_client(connect: Connect) -> None:
    script = {"bad": Reply(status=400, text="no"), "down": Reply(status=500)}
    with ModelServer(script) as model:
        client = connect(model)
        seen: list[str] = []

        @holdfast.workflow
        async def asks() -> list[str]:
            for prompt in ("bad", "down"):
                try:
                    await client.responses.create(model="m", input=prompt)
                except openai.APIStatusError as error:
                    seen.append(f"{type(error).__name__} {error.status_code}")
            return seen

        assert await result_of(asks) == ["BadRequestError 400", "InternalServerError 500"]
        assert [asked.prompt for asked in model.requests] == ["bad", "down", "down", "down"]


async def test_a_server_that_is_not_there_is_tried_as_often_as_the_policy_says(
    connect: Connect,
) -> None:
    with ModelServer(["x"]) as model:
        client = connect(model)

    @holdfast.workflow
    async def asks() -> str:
        try:
            await client.responses.create(model="m", input="hello")
        except openai.APIConnectionError:
            return "gone"
        return "there"

    async with holdfast.Holdfast(":memory:", workflows=[asks]) as app:
        run = await app.start(asks)
        assert await asyncio.wait_for(run.result(), 120) == "gone"
        steps = [entry for entry in await app.history(run.id) if entry.key.startswith("/POST")]
        assert [entry.attempt for entry in steps] == [1, 2, 3]


@pytest.mark.parametrize("content", [b"notes", b"\xff\x00 a sound"])
async def test_an_upload_is_replayed_and_not_made_again(connect: Connect, content: bytes) -> None:
    with ModelServer([]) as model:
        client = connect(model)

        @holdfast.workflow
        async def uploads() -> str:
            try:
                await client.files.create(file=("a.txt", content), purpose="assistants")
            except openai.BadRequestError as error:  # this server takes none
                return type(error).__name__ + await holdfast.promise("answer", str)
            return "?"

        async with Environment([uploads]) as env:
            run = await env.start(uploads)
            await env.settle()
            await env.crash()
            await run.resolve("answer", "!")
            assert await env.result(run) == "BadRequestError!"


async def test_outside_of_runs_it_is_the_client_it_was(connect: Connect) -> None:
    with ModelServer({"hello": [Reply(status=500), "yes"]}) as model:
        client = connect(model)
        assert isinstance(client, openai.AsyncOpenAI)
        assert client.max_retries == openai.DEFAULT_MAX_RETRIES
        answer = await client.responses.create(model="m", input="hello")
        assert answer.output_text == "yes"  # by the client's own retries
        assert model.requests[0].idempotency_key is None


async def test_what_with_options_makes_of_it_is_durable_too(connect: Connect) -> None:
    with ModelServer(["yes"]) as model:
        client = connect(model).with_options(timeout=120)

        @holdfast.workflow
        async def asks() -> str:
            return (await client.responses.create(model="m", input="hello")).output_text

        async with holdfast.Holdfast(":memory:", workflows=[asks]) as app:
            run = await app.start(asks)
            assert await run.result() == "yes"
            assert "/POST responses#0" in [entry.key for entry in await app.history(run.id)]


def test_a_sync_client_is_used_in_def_workflows() -> None:
    with ModelServer(["yes\nindeed"]) as model:
        client = durable(openai.OpenAI(base_url=model.url, api_key="any"))

        @holdfast.workflow
        def asks() -> list[str]:
            whole = client.chat.completions.create(model="m", messages=HELLO)
            said = []
            for chunk in client.chat.completions.create(model="m", messages=HELLO, stream=True):
                said.append(chunk.choices[0].delta.content or "")
            return [whole.choices[0].message.content or "", "".join(said)]

        app = holdfast.Holdfast(":memory:", workflows=[asks])
        with client, app.sync() as door:
            assert door.start(asks).result() == ["yes\nindeed", "yes\nindeed"]
        assert len(model.requests) == 2


async def test_anthropics_client_too_streamed_and_not() -> None:
    with ModelServer(["yes\nindeed"]) as model:
        plain = anthropic.AsyncAnthropic(base_url=model.address, api_key="any")
        client = durable_anthropic(plain, retry=SOON)

        @holdfast.workflow
        async def asks() -> list[str]:
            said: list[str] = []
            message = await client.messages.create(model="m", max_tokens=9, messages=HELLO)
            said.append(message.content[0].text)  # type: ignore[union-attr]
            async with client.messages.stream(model="m", max_tokens=9, messages=HELLO) as stream:
                said += [text async for text in stream.text_stream]
            return said

        async with client:
            assert await result_of(asks) == ["yes\nindeed", "yes\n", "indeed"]


# Streams


async def test_a_stream_is_read_while_it_comes(
    connect: Connect,
) -> None:
    heard: list[str] = []
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(asked: Asked, piece: int) -> None:
        if piece == 2:  # the role, then "one"
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

    with ModelServer(["one\ntwo\nthree"], on_piece=hold) as model:
        client = connect(model)

        @holdfast.workflow
        async def asks() -> list[str]:
            stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
            async for chunk in stream:
                heard.append(chunk.choices[0].delta.content or "")
                go_on.set()  # what came so far was heard while the rest was yet to come
            return heard

        assert await result_of(asks) == ["", "one\n", "two\n", "three", ""]


async def test_a_stream_that_was_cut_short_is_replayed_so(
    connect: Connect,
) -> None:
    with ModelServer(["one\ntwo\nthree\nfour\nfive"]) as model:
        client = connect(model)

        @holdfast.workflow
        async def asks() -> str:
            stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
            async for chunk in stream:
                if chunk.choices[0].delta.content == "two\n":
                    break
            await stream.close()
            await holdfast.sleep(timedelta(hours=1))
            return "enough"

        async with Environment([asks]) as env:
            run = await env.start(asks)
            await env.settle()
            await env.crash()
            await env.advance(timedelta(hours=2))
            assert await env.result(run) == "enough"
        assert len(model.requests) == 1


async def test_a_stream_that_breaks_in_its_middle_is_not_begun_again(
    connect: Connect,
) -> None:
    def cut(asked: Asked, piece: int) -> None:
        if piece == 3:
            raise ConnectionError("cut")

    with ModelServer(["one\ntwo\nthree"], on_piece=cut) as model:
        client = connect(model)

        @holdfast.workflow
        async def asks() -> str:
            stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
            async for _ in stream:
                pass
            return "complete"

        with pytest.raises(holdfast.RunFailed, match="broke"):
            await result_of(asks)
        assert len(model.requests) == 1


async def test_a_refused_stream_is_tried_again(connect: Connect) -> None:
    with ModelServer({"hello": [Reply(status=503), "yes"]}) as model:
        client = connect(model)

        @holdfast.workflow
        async def asks() -> str:
            stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        assert await result_of(asks) == "yes"
        assert len(model.requests) == 2


# Bad input


@pytest.mark.parametrize("thing", [None, "client", object(), holdfast])
def test_what_is_no_client_is_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match="a client of OpenAI or Anthropic"):
        durable(thing)


@pytest.fixture
def client() -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="any") as client:
        yield client


def test_a_client_without_the_hooks_that_are_needed_is_refused(client: openai.OpenAI) -> None:
    del client._client._mounts
    try:
        with pytest.raises(holdfast.Unsupported, match=r"_client\._mounts.*use openai=="):
            durable(client)
    finally:
        client._client._mounts = {}


def test_a_newer_client_whose_hooks_are_there_is_warned_of(
    client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.adapters.openai._TESTED", "1.0.0")
    with pytest.warns(UserWarning, match="is newer than 1.0.0"):
        durable(client)


def test_it_explains_what_will_be_journaled(
    client: openai.OpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    durable(client, explain=True)
    assert "OpenAI: inside of runs these are steps" in capsys.readouterr().out
