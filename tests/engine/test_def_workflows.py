"""`def` workflows: they call steps plainly, and their waits suspend."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Decision, Status, WorkerOptions
from holdfast.testing import Environment, crash_everywhere

DAY = timedelta(days=1)
SOON = timedelta(milliseconds=200)
SECONDS_MAX = 30
LEAVES_AT_ONCE = WorkerOptions(memory_wait=timedelta(0))


@holdfast.step
def add(left: int, right: int) -> int:
    return left + right


@holdfast.workflow
def adds(upto: int) -> int:
    total = 0
    for number in range(upto):
        total = add(total, number)
    return total


async def test_steps_are_called_plainly_and_survive_a_crash_anywhere() -> None:
    report = await crash_everywhere(adds, 4)
    assert report.result == 6
    assert list(report.steps) == ["/add#0", "/add#1", "/add#2", "/add#3"]


async def test_a_sync_step_runs_in_the_thread_that_calls_it() -> None:
    @holdfast.step
    def where() -> int:
        return threading.get_ident()

    @holdfast.workflow
    def compares() -> bool:
        return where() == threading.get_ident()

    async with Environment([compares]) as env:
        assert await env.result(await env.start(compares))


async def test_a_step_that_takes_too_long_is_tried_again_while_it_goes_on() -> None:
    calls: list[str] = []
    go_on = threading.Event()

    @holdfast.step(timeout=SOON, retry=holdfast.Retry(attempts=100, backoff=SOON))
    def hangs_once() -> int:
        calls.append(threading.current_thread().name)
        if len(calls) == 1:
            go_on.wait(SECONDS_MAX)
        return len(calls)

    @holdfast.workflow
    def tries() -> int:
        return hangs_once()

    async with Environment([tries]) as env:
        # A machine that is slow enough may take too long for the second, too.
        assert await env.result(await env.start(tries)) >= 2
        go_on.set()


@holdfast.workflow
def waits() -> list[Any]:
    seen: list[Any] = [add(1, 1), holdfast.now()]
    holdfast.sleep(DAY)
    seen += [holdfast.now(), holdfast.receive(str).result()]
    seen.append(holdfast.promise("answer", int).result())
    seen.append(holdfast.race(late=holdfast.promise("never"), timer=DAY).result())
    seen.append(holdfast.child(adds, 3).result())
    seen.append(holdfast.approval("release").result())
    return [*seen, add(2, 2)]


@pytest.mark.parametrize("options", [LEAVES_AT_ONCE, None], ids=["out", "in memory"])
async def test_every_wait_works_in_a_thread(options: WorkerOptions | None) -> None:
    report = await crash_everywhere(
        waits,
        workflows=[adds],
        messages=["hello"],
        answers={"answer": 7, "release": Decision(True)},
        worker_options=options,
    )
    first, before, after, message, answer, raced, sum, decision, last = report.result
    assert isinstance(before, datetime) and after - before == DAY
    assert (first, message, answer, sum, last) == (2, "hello", 7, 3, 4)
    assert tuple(raced) == ("timer", None) and decision == Decision(True)


@holdfast.workflow
def listens_for_a_day() -> tuple[str, Any]:
    return holdfast.race(message=holdfast.receive(str), late=DAY).result()


async def test_a_message_can_be_raced_against_time() -> None:
    assert (await crash_everywhere(listens_for_a_day)).result == ("late", None)
    report = await crash_everywhere(listens_for_a_day, messages=["hello"])
    assert report.result == ("message", "hello")


async def test_another_run_is_started_by_the_call_itself() -> None:
    @holdfast.workflow
    def starts_another() -> None:
        holdfast.start(adds.with_options(id="other"), 3)

    report = await crash_everywhere(starts_another, workflows=[adds])
    assert "/start#0" in report.steps
    async with Environment([starts_another, adds]) as env:
        await env.result(await env.start(starts_another))
        assert await env.result(env.app.get("other")) == 3


async def test_a_waiting_def_workflow_leaves_memory_and_frees_its_thread() -> None:
    @holdfast.workflow
    def asks() -> int:
        return add(holdfast.promise("answer", int).result(), 1)

    options = WorkerOptions(memory_wait=timedelta(0), threads=1)
    async with Environment([asks], worker_options=options) as env:
        runs = [await env.start(asks) for _ in range(5)]
        await env.settle()
        assert env.worker.runs == {}
        for number, run in enumerate(runs):
            await run.resolve("answer", number)
        assert [await env.result(run) for run in runs] == [1, 2, 3, 4, 5]


async def test_a_def_workflow_is_cancelled_where_it_waits_and_may_clean_up() -> None:
    cleaned: list[str] = []

    @holdfast.workflow
    def patient() -> None:
        try:
            holdfast.promise("never").result()
        except asyncio.CancelledError:
            cleaned.append("up")
            raise

    async with Environment([patient]) as env:
        run = await env.start(patient)
        await env.settle()
        await run.cancel()
        await env.settle()
        assert await run.status() is Status.CANCELLED
    assert cleaned == ["up"]


async def test_an_error_in_a_def_workflow_fails_the_run() -> None:
    @holdfast.workflow
    def fails() -> None:
        add(1, 2)
        raise ValueError("no good")

    async with Environment([fails]) as env:
        with pytest.raises(holdfast.RunFailed, match="no good"):
            await env.result(await env.start(fails))


async def test_a_def_workflow_can_nest_steps() -> None:
    @holdfast.step
    def twice(number: int) -> int:
        return add(add(number, 0), number)

    @holdfast.workflow
    def nests() -> int:
        return twice(4)

    report = await crash_everywhere(nests)
    assert report.result == 8
    assert set(report.steps) == {"/twice#0", "/twice#0/add#0", "/twice#0/add#1"}


async def test_a_def_workflow_that_spends_all_its_time_computing_does_not_block_others() -> None:
    release = threading.Event()

    @holdfast.workflow
    def computes() -> str:
        release.wait()
        return "computed"

    @holdfast.workflow
    def quick() -> int:
        return add(1, 2)

    async with Environment([computes, quick]) as env:
        slow = await env.start(computes)
        try:
            assert await asyncio.wait_for((await env.start(quick)).result(), 120) == 3
        finally:
            release.set()
        assert await slow.result() == "computed"
