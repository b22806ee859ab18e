"""Waits have one outcome, however often they are awaited, and a run that waits leaves memory."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Status, WorkerOptions
from holdfast.testing import Environment, crash_everywhere

DAY = timedelta(days=1)
LEAVES_AT_ONCE = WorkerOptions(memory_wait=timedelta(0))


@holdfast.step
async def note(text: str) -> str:
    return text


# One outcome


async def test_a_wait_that_is_awaited_again_gives_the_same_and_is_recorded_once() -> None:
    @holdfast.workflow
    async def awaits_again() -> list[Any]:
        timer, promise = holdfast.sleep(DAY), holdfast.promise("answer", int)
        child = holdfast.child(awaits_two_messages)
        seen: list[Any] = []
        for wait in (timer, promise, child):
            seen += [await wait, await wait]
        return [*seen, await note("end")]

    @holdfast.workflow
    async def awaits_two_messages() -> str:
        return await note("child")

    report = await crash_everywhere(
        awaits_again, workflows=[awaits_two_messages], answers={"answer": 7}
    )
    assert report.result == [None, None, 7, 7, "child", "child", "end"]


async def test_several_tasks_may_await_the_same_and_one_may_give_up() -> None:
    @holdfast.workflow
    async def awaits_together() -> list[Any]:
        promise = holdfast.promise("answer", int)

        async def wait(seconds: float) -> int | None:
            try:
                async with asyncio.timeout(seconds):
                    return await promise
            except TimeoutError:
                return None

        seen = await asyncio.gather(wait(60), wait(7200), wait(7200))
        return [*seen, await note("end")]

    async with Environment([awaits_together]) as env:
        run = await env.start(awaits_together)
        await env.advance(timedelta(hours=1))
        await env.crash()
        await run.resolve("answer", 7)
        assert await env.result(run) == [None, 7, 7, "end"]
    await crash_everywhere(awaits_together, answers={"answer": 7})
    await crash_everywhere(awaits_together)


async def test_the_error_of_a_message_is_raised_to_everybody_who_awaits_it() -> None:
    @holdfast.workflow
    async def asks_twice() -> list[str]:
        message, seen = holdfast.receive(int), []
        for _ in range(2):
            try:
                await message
            except holdfast.BadValue:
                seen.append(await note("bad"))
        return seen

    report = await crash_everywhere(asks_twice, messages=["seven"])
    assert report.result == ["bad", "bad"]


# In memory and out of it


@holdfast.workflow
async def awaits_an_answer() -> int:
    await note("before")
    return await holdfast.promise("answer", int)


async def test_a_run_that_only_waits_leaves_memory_and_comes_back() -> None:
    async with Environment([awaits_an_answer], worker_options=LEAVES_AT_ONCE) as env:
        run = await env.start(awaits_an_answer)
        await env.settle()
        assert env.worker.runs == {}
        row = await env.app.row(run.id)
        assert (row.status, row.reason) == (Status.WAITING, "the promise 'answer'")
        await run.resolve("answer", 5)
        assert await env.result(run) == 5
    assert env.started == ["/note#0"]


async def test_a_wait_shorter_than_the_threshold_stays_in_memory() -> None:
    @holdfast.workflow
    async def naps_and_sleeps() -> None:
        await holdfast.sleep(timedelta(seconds=4))
        await holdfast.sleep(timedelta(seconds=6))

    options = WorkerOptions(memory_wait=timedelta(seconds=5))
    async with Environment([naps_and_sleeps], worker_options=options) as env:
        run = await env.start(naps_and_sleeps)
        await env.settle()
        assert len(env.worker.runs) == 1
        await env.advance(timedelta(seconds=4))
        assert len(env.worker.runs) == 0
        await env.result(run)


async def test_code_that_swallows_the_suspension_gets_no_further() -> None:
    went_on: list[str] = []

    @holdfast.workflow
    async def swallows() -> str:
        try:
            await holdfast.promise("answer")
        except BaseException:
            went_on.append("swallowed")
            await note("must not happen")
            went_on.append("got further")
        return await note("answered")

    async with Environment([swallows], worker_options=LEAVES_AT_ONCE) as env:
        run = await env.start(swallows)
        await env.settle()
        assert env.started == []
        await run.resolve("answer", None)
        assert await env.result(run) == "answered"
    assert went_on == ["swallowed"]
    assert env.started == ["/note#0"]


async def test_parallel_steps_inside_a_step_finish_in_a_run_that_leaves_memory_at_once() -> None:
    @holdfast.step
    async def tool() -> list[str]:
        return await asyncio.gather(*(note(str(i)) for i in range(5)))

    @holdfast.workflow
    async def uses_tools() -> list[list[str]]:
        return await asyncio.gather(*(tool() for _ in range(3)))

    async with Environment([uses_tools], worker_options=LEAVES_AT_ONCE) as env:
        found = await env.result(await env.start(uses_tools))
    assert found == [["0", "1", "2", "3", "4"]] * 3


async def test_a_race_inside_a_step_goes_on_when_its_timer_is_due() -> None:
    @holdfast.step
    async def asks() -> str:
        winner, _ = await holdfast.race(answer=holdfast.promise("answer"), late=holdfast.sleep(DAY))
        return winner

    @holdfast.workflow
    async def lets_it_ask() -> str:
        return await asks() + await note("!")

    assert (await crash_everywhere(lets_it_ask)).result == "late!"
    report = await crash_everywhere(lets_it_ask, answers={"answer": 1})
    assert report.result == "answer!"


async def test_tasks_made_on_the_way_out_are_not_left_behind() -> None:
    made: list[asyncio.Task[Any]] = []

    @holdfast.workflow
    async def makes_tasks() -> str:
        async def waits_for_ever() -> None:
            await asyncio.Event().wait()

        try:
            await holdfast.promise("answer")
        except BaseException:
            made.extend(asyncio.create_task(waits_for_ever()) for _ in range(2))
            made.append(asyncio.create_task(note("never")))
            raise
        return await note("answered")

    async with Environment([makes_tasks]) as env:
        run = await env.start(makes_tasks)
        await env.settle()
        await asyncio.wait_for(asyncio.wait(made), 120)
        await run.resolve("answer", 1)
        assert await env.result(run) == "answered"
    assert env.started == ["/note#0"]


async def test_what_comes_for_a_step_that_waits_reaches_it_in_a_run_that_leaves_at_once() -> None:
    @holdfast.workflow
    async def answers() -> str:
        return "child"

    @holdfast.step
    async def asks_around() -> list[str]:
        heard = [await holdfast.child(answers)]
        heard.append(await holdfast.receive(str))
        heard.append(await holdfast.promise("ok", str))
        return heard

    @holdfast.workflow
    async def asks() -> list[str]:
        return await asks_around()

    async with Environment([asks, answers], worker_options=LEAVES_AT_ONCE) as env:
        run = await env.start(asks)
        await env.settle()
        await run.send("message")
        await env.settle()
        await run.resolve("ok", "answer")
        assert await env.result(run) == ["child", "message", "answer"]


# Waiting in threads of a step's own


def answer_to(name: str) -> str:
    return holdfast.promise(name, str).result()


@holdfast.step
def asks_twice_at_once() -> str:
    with ThreadPoolExecutor(2) as pool:
        answers = [
            pool.submit(contextvars.copy_context().run, answer_to, name) for name in ("one", "two")
        ]
        return " ".join(answer.result() for answer in answers)


@holdfast.workflow
def asks_in_a_body_that_is_a_thread() -> str:
    return asks_twice_at_once()


@holdfast.workflow
async def asks_in_a_thread() -> str:
    return await asyncio.to_thread(asks_twice_at_once)


@holdfast.workflow
async def asks_in_a_pool_of_its_own() -> str:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(2) as pool:  # whose end blocks the loop until its threads are back
        names = ("one", "two")
        return " ".join(
            await asyncio.gather(*(loop.run_in_executor(pool, answer_to, name) for name in names))
        )


@pytest.mark.parametrize(
    "workflow", [asks_in_a_body_that_is_a_thread, asks_in_a_thread, asks_in_a_pool_of_its_own]
)
async def test_a_sync_step_that_waits_in_threads_of_its_own_leaves_memory(
    workflow: holdfast.Workflow[[], str],
) -> None:
    async with Environment([workflow]) as env:
        run = await env.start(workflow)
        for name in ("one", "two"):
            await env.settle()
            assert await run.status() is Status.WAITING
            await run.resolve(name, name, early=True)
        assert await env.result(run) == "one two"
