"""Time in steps is real: their time-outs also come while they wait for something durable."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import timedelta

import pytest

import holdfast
from holdfast import Retry, Status, WorkerOptions
from holdfast.store.base import Append, Operation, Outcome
from holdfast.testing import Environment
from holdfast.testing.kept_store import KeptStore
from holdfast.types import RunRow

SOON = timedelta(milliseconds=20)
LEAVES_AT_ONCE = WorkerOptions(memory_wait=timedelta(0))
ONCE = Retry(attempts=1)


@holdfast.step
async def gives_up_by_itself() -> str:
    try:
        async with asyncio.timeout(SOON.total_seconds()):
            return await holdfast.promise("answer", str)
    except TimeoutError:
        return "nobody answered"


@holdfast.step(timeout=SOON, retry=ONCE)
async def is_limited() -> str:
    return await holdfast.promise("answer", str)


@holdfast.step(timeout=SOON, retry=ONCE)
async def is_limited_around_another() -> str:
    return await waits()


@holdfast.step
async def waits() -> str:
    return await holdfast.promise("answer", str)


@holdfast.step(timeout=SOON, retry=ONCE)
def is_limited_in_a_thread() -> str:
    return holdfast.promise("answer", str).result()


@holdfast.workflow
async def asks(how: str) -> str:
    if how == "by itself":
        return await gives_up_by_itself()
    try:
        if how == "in a thread":
            return await asyncio.to_thread(is_limited_in_a_thread)
        return await (is_limited() if how == "limited" else is_limited_around_another())
    except holdfast.StepTimedOut:
        return "nobody answered"


@pytest.mark.parametrize("how", ["by itself", "limited", "around another", "in a thread"])
async def test_a_time_out_of_a_step_comes_although_its_run_only_waits(how: str) -> None:
    async with Environment([asks], worker_options=LEAVES_AT_ONCE) as env:
        assert await env.result(await env.start(asks, how)) == "nobody answered"


async def test_nor_does_it_matter_that_the_process_had_no_turn_until_it_was_overdue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Environment([asks], worker_options=LEAVES_AT_ONCE) as env:
        look = env.app.row

        async def looks_and_is_held_up(run: str) -> RunRow:
            found = await look(run)
            threading.Event().wait(10 * SOON.total_seconds())  # as if others had the processor
            return found

        monkeypatch.setattr(env.app, "row", looks_and_is_held_up)
        assert await env.result(await env.start(asks, "limited")) == "nobody answered"


class HeldUp(KeptStore):
    """Takes so long to write a promise down that the time-out around it is overdue by then."""

    async def commit(self, operations: Sequence[Operation], *, request: str = "") -> list[Outcome]:
        outcomes = await super().commit(operations, request=request)
        if any(isinstance(one, Append) and one.promises for one in operations):
            threading.Event().wait(10 * SOON.total_seconds())  # as if others had the processor
        return outcomes


@pytest.mark.parametrize("how", ["by itself", "limited", "around another", "in a thread"])
async def test_a_run_does_not_leave_memory_before_an_overdue_time_out_had_its_turn(
    how: str,
) -> None:
    store = HeldUp()
    async with Environment([asks], worker_options=LEAVES_AT_ONCE, store=store) as env:
        assert await env.result(await env.start(asks, how)) == "nobody answered"
        assert env.started.count(env.started[0]) == 1, "it was not begun anew"
    await store.discard()


async def test_a_run_leaves_memory_when_the_timers_of_its_steps_are_over() -> None:
    @holdfast.step
    async def hurries_and_waits() -> str:
        async with asyncio.timeout(3600):
            await asyncio.sleep(0.001)
        return await holdfast.promise("answer", str)

    @holdfast.workflow
    async def patient() -> str:
        return await hurries_and_waits()

    async with Environment([patient], worker_options=LEAVES_AT_ONCE) as env:
        run = await env.start(patient)
        await env.settle()
        assert env.worker.runs == {}
        await run.resolve("answer", "yes")
        assert await env.result(run) == "yes"


async def test_a_run_whose_step_waits_under_a_time_out_can_be_paused_and_answered() -> None:
    @holdfast.step(timeout=timedelta(hours=1))
    async def waits_for_an_hour() -> str:
        return await holdfast.promise("answer", str)

    @holdfast.workflow
    async def patient() -> str:
        return await waits_for_an_hour()

    async with Environment([patient], worker_options=LEAVES_AT_ONCE) as env:
        run = await env.start(patient)
        await env.settle()
        assert len(env.worker.runs) == 1
        await run.pause()
        await env.settle()
        assert await run.status() is Status.PAUSED
        assert env.worker.runs == {}
        await run.resume()
        await run.resolve("answer", "yes")
        assert await env.result(run) == "yes"
