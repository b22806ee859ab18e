"""What is read of a step before it has ended: nothing that follows from it is on record before."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Status, WorkerOptions
from holdfast.adapters._relay import Relay
from holdfast.testing import Environment, crash_everywhere

WORDS = ["in", "the", "end"]
A_WHILE = 30  # times around the event loop: enough for whatever a reader does at once
DAY = timedelta(days=1)


@holdfast.step
async def note(text: object) -> str:
    return str(text)


@holdfast.step
def note_in_thread(text: str) -> str:
    return text


@holdfast.workflow
async def listens(text: str) -> str:
    return await note(text)


async def nothing() -> None:
    for _ in range(A_WHILE):
        await asyncio.sleep(0)


async def speech(
    *,
    last: Callable[[], Awaitable[object]] = nothing,
    told: Callable[[asyncio.Future[Any]], object] = lambda _: None,
) -> AsyncIterator[str]:
    """Words that are read while they are spoken. last: what the step does before it ends. told: is
    given the task that speaks."""
    relay: Relay[str] = Relay()

    @holdfast.step(name="speak")
    async def speak() -> list[str]:
        for word in WORDS[:-1]:
            relay.recorded.append(word)
            relay.hand_on(word)
            await nothing()
        await last()
        return WORDS

    speaking = asyncio.ensure_future(speak())
    told(speaking)
    reading = relay.read(speaking, lambda words: words, cancels=True)
    async with contextlib.aclosing(reading) as words:
        async for word in words:
            yield word


async def keys_of(env: Environment, run: Any) -> list[str]:
    return [entry.key for entry in await env.app.history(run.id) if entry.key.startswith("/")]


# Whatever is called between two pieces


async def after_a_time_out(word: str) -> str:
    async with asyncio.timeout(60):
        return await note(word)


async def first_of_two(word: str) -> Any:
    return (await holdfast.race(note=note(word), late=DAY))[1]


async def in_tasks(word: str) -> tuple[str, str]:
    return await asyncio.gather(note(word), note(f"{word} again"))


async def with_a_value(word: str) -> str:
    return await note(f"{word} {holdfast.uuid4()}")


CALLS: dict[str, Callable[[str], Awaitable[Any]]] = {
    "step": note,
    "step in a thread": lambda word: asyncio.to_thread(note_in_thread, word),
    "plain thread": lambda word: asyncio.to_thread(str.upper, word),
    "sleep": lambda word: holdfast.sleep(timedelta(microseconds=1)),
    "asyncio.sleep": lambda word: asyncio.sleep(1e-6, word),
    "promise": lambda word: holdfast.promise(word, str),
    "child": lambda word: holdfast.child(listens, word),
    "time-out": after_a_time_out,
    "race": first_of_two,
    "tasks": in_tasks,
    "value": with_a_value,
}


QUICK = ("step", "plain thread", "asyncio.sleep", "race", "value")


@pytest.mark.parametrize(
    "what",
    [one if one in QUICK else pytest.param(one, marks=pytest.mark.full) for one in CALLS],
)
async def test_what_is_called_between_two_pieces_follows_the_step_that_made_them(what: str) -> None:
    @holdfast.workflow
    async def reads() -> list[Any]:
        return [await CALLS[what](word) async for word in speech()]

    report = await crash_everywhere(
        reads, workflows=[listens], answers={word: word for word in WORDS}
    )
    assert len(report.result) == len(WORDS)


async def test_what_was_made_of_a_piece_is_on_record_after_the_piece() -> None:
    @holdfast.workflow
    async def reads() -> None:
        async for word in speech():
            await note(f"{word} {holdfast.uuid4()}")

    async with Environment([reads]) as env:
        run = await env.start(reads)
        await env.result(run)
        found = await keys_of(env, run)
    assert found[:3] == ["/speak#0", "/uuid4#0", "/note#0"]


async def test_a_piece_is_read_before_the_step_has_ended() -> None:
    read: list[str] = []
    heard = asyncio.Event()

    @holdfast.workflow
    async def reads() -> None:
        async for word in speech(last=heard.wait):
            read.append(word)
            if len(read) == 2:
                heard.set()

    async with Environment([reads]) as env:
        await env.result(await env.start(reads))
    assert read == WORDS


# Whoever calls


async def test_a_reader_in_a_task_holds_those_who_made_it() -> None:
    @holdfast.workflow
    async def pumps() -> list[str]:
        queue: asyncio.Queue[str | None] = asyncio.Queue()

        async def pump() -> None:
            for _ in range(2):
                async for word in speech():
                    queue.put_nowait(word)
            queue.put_nowait(None)

        pumping = asyncio.create_task(pump())
        await note("begins")  # when it looks, words are there already
        said = []
        while (word := await queue.get()) is not None:
            said.append(await note(word))
        await pumping
        return said

    report = await crash_everywhere(pumps)
    assert report.result == WORDS * 2


async def test_tasks_that_a_reader_makes_wait_too() -> None:
    @holdfast.workflow
    async def hands_out() -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(in_tasks(word)) async for word in speech()]
        return [said for task in tasks for said in task.result()]

    report = await crash_everywhere(hands_out)
    assert len(report.result) == 2 * len(WORDS)


async def test_a_stream_in_a_step_holds_the_step_that_reads_it() -> None:
    @holdfast.step
    async def reads() -> list[str]:
        return [await note(word) async for word in speech()]

    @holdfast.workflow
    async def nests() -> list[str]:
        return await reads()

    async with Environment([nests]) as env:
        run = await env.start(nests)
        assert await env.result(run) == WORDS
        found = await keys_of(env, run)
    assert found[0] == "/reads#0/speak#0"


async def test_a_branch_beside_the_reader_waits_for_nothing() -> None:
    noted = asyncio.Event()

    @holdfast.workflow
    async def two() -> None:
        async def reads() -> None:
            async for word in speech(last=noted.wait):
                await note(word)

        async def works() -> None:
            await note("beside")
            noted.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(reads())
            group.create_task(works())

    async with Environment([two]) as env:
        await env.result(await env.start(two))
    # If it waited for the speech, both would wait for ever.


# While they wait


async def test_a_run_leaves_memory_while_a_reader_waits_for_a_step_that_waits() -> None:
    async def answer() -> None:
        await holdfast.promise("answer")

    @holdfast.workflow
    async def reads() -> list[str]:
        return [await note(word) async for word in speech(last=answer)]

    async with Environment([reads], worker_options=WorkerOptions(memory_wait=timedelta(0))) as env:
        run = await env.start(reads)
        await env.settle()
        assert await run.status() is Status.WAITING
        await env.crash()
        await run.resolve("answer", 1)
        assert await env.result(run) == WORDS


async def test_a_reader_that_waits_can_be_cancelled() -> None:
    begun, never = asyncio.Event(), asyncio.Event()

    @holdfast.workflow
    async def reads() -> None:
        async for word in speech(last=never.wait):
            begun.set()
            await note(word)

    async with Environment([reads]) as env:
        run = await env.start(reads)
        await begun.wait()
        await run.cancel()
        with pytest.raises(holdfast.RunCancelled):
            await run.result()
    assert "/note#0" not in env.started


# When the step does not return


class Silent(holdfast.Terminal):
    pass


async def test_pieces_of_a_step_that_fails_come_again_before_its_error() -> None:
    async def fails() -> None:
        raise Silent

    @holdfast.workflow
    async def reads() -> list[str]:
        said = []
        try:
            async for word in speech(last=fails):
                said.append(await note(word))
        except Silent:
            said.append(await note(said))
        return said

    report = await crash_everywhere(reads)
    assert report.result == ["in", "the", "['in', 'the']"]


@pytest.mark.parametrize("what", ["step", "plain thread", "value"])
async def test_pieces_of_a_step_that_is_cancelled_come_again(what: str) -> None:
    @holdfast.workflow
    async def reads() -> list[Any]:
        async def stops() -> None:
            speaking = await known
            await note("enough")
            await nothing()
            speaking.cancel()

        known: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        stopping = asyncio.create_task(stops())
        said: list[Any] = []
        try:
            async for word in speech(last=asyncio.Event().wait, told=known.set_result):
                said.append(await CALLS[what](word))
        except asyncio.CancelledError:
            await stopping
            return [len(said), await note(said)]
        raise AssertionError("nobody stopped it")

    report = await crash_everywhere(reads)
    assert report.result[0] in (1, 2)  # it may be stopped at any time


async def test_pieces_that_were_read_until_a_time_out_come_again() -> None:
    @holdfast.workflow
    async def reads() -> list[str]:
        said: list[str] = []
        try:
            async with asyncio.timeout(0.1):
                async for word in speech(last=asyncio.Event().wait):
                    said.append(word)
                    if word == "the":
                        await note(word)
        except TimeoutError:
            pass
        return [*said, await note(said)]

    # In steps time is real, and so it is here: how much is read until then is not said.
    report = await crash_everywhere(reads, clock=holdfast.SystemClock())
    assert report.result[-1] == str(report.result[:-1])


async def test_whoever_stops_a_reader_goes_on() -> None:
    @holdfast.workflow
    async def stops() -> list[str]:
        said: list[str] = []

        async def read() -> None:
            async for word in speech(last=asyncio.Event().wait):
                said.append(word)

        reading = asyncio.create_task(read())
        await note("begins")
        await nothing()
        reading.cancel()
        return [await note(said), await note("done")]

    report = await crash_everywhere(stops)
    assert report.result[1] == "done"


async def test_what_a_session_is_told_between_two_pieces_is_kept_with_them() -> None:
    @holdfast.workflow
    async def tells() -> list[str]:
        chat = holdfast.session()
        async for word in speech():
            chat.append(word)
            chat.set("last", word)
        return [*chat.messages, chat.get("last")]

    report = await crash_everywhere(tells.with_options(session="ada"))
    assert report.result == [*WORDS, "end"]


async def test_outside_of_runs_a_preview_is_nothing() -> None:
    preview = holdfast.Preview(list)
    preview.begin()
    preview.end()
    assert await note("plain") == "plain"
