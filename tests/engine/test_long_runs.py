"""Runs that go on for long: fresh journals, snapshots, deadlines, delays."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import holdfast
from holdfast import Status, WorkerOptions
from holdfast.engine.execution import Execution
from holdfast.testing import Environment, crash_everywhere
from holdfast.types import Kind

DAY = timedelta(days=1)
LEAVES_AT_ONCE = WorkerOptions(memory_wait=timedelta(0))


@holdfast.step
async def count(number: int) -> int:
    return number + 1


# continue_as


@holdfast.workflow
async def counts_down(left: int, done: int = 0) -> int:
    done = await count(done)
    await holdfast.sleep(DAY)
    if left > 1:
        holdfast.continue_as(left - 1, done)
    return done


async def test_continue_as_goes_on_under_a_fresh_journal_and_the_same_id() -> None:
    async with Environment([counts_down]) as env:
        run = await env.start(counts_down, 3)
        assert await env.result(run) == 3
        row = await env.app.row(run.id)
        assert row.generation == 3
        steps = [e.key for e in await run.history() if e.kind is Kind.STEP]
    assert steps == ["/count#0"]  # only the last journal is there


async def test_continue_as_survives_a_crash_anywhere() -> None:
    assert (await crash_everywhere(counts_down, 3)).result == 3


async def test_each_generation_has_idempotency_keys_of_its_own() -> None:
    keys: list[str] = []

    @holdfast.step
    async def charge() -> None:
        keys.append(holdfast.idempotency_key())

    @holdfast.workflow
    async def charges(left: int) -> None:
        await charge()
        if left:
            holdfast.continue_as(left - 1)

    async with Environment([charges]) as env:
        await env.result(await env.start(charges, 2))
    assert len(set(keys)) == len(keys) == 3


async def test_messages_sent_to_one_generation_are_read_by_the_next() -> None:
    @holdfast.workflow
    async def reads(heard: list[str]) -> list[str]:
        heard = [*heard, await holdfast.receive(str)]
        if len(heard) < 3:
            holdfast.continue_as(heard)
        return heard

    assert (await crash_everywhere(reads, [], messages=["a", "b", "c"])).result == ["a", "b", "c"]


async def test_a_child_of_an_earlier_generation_does_not_answer_for_that_of_a_later_one() -> None:
    @holdfast.workflow
    async def slow(number: int) -> int:
        await holdfast.sleep(DAY)
        return number

    @holdfast.workflow
    async def impatient(turn: int) -> int:
        winner, value = await holdfast.race(
            child=holdfast.child(slow, turn), late=holdfast.sleep(DAY / 2 if turn == 0 else 2 * DAY)
        )
        if winner == "late":
            holdfast.continue_as(turn + 1)
        return value

    async with Environment([impatient, slow]) as env:
        assert await env.result(await env.start(impatient, 0)) == 1


async def test_continue_as_with_arguments_that_do_not_fit_fails_the_run() -> None:
    @holdfast.workflow
    async def misfits(number: int) -> None:
        holdfast.continue_as("many")

    async with Environment([misfits]) as env:
        with pytest.raises(holdfast.RunFailed) as failed:
            await env.result(await env.start(misfits, 1))
    assert isinstance(failed.value.__cause__, holdfast.BadArguments)


# stash and recovered


@holdfast.workflow
async def takes_snapshots(turns: int) -> list[int]:
    state: list[int] = holdfast.recovered(list[int]) or []
    while len(state) < turns:
        state = [*state, await count(len(state))]
        await count(100)
        holdfast.stash(state)
    return [*state, await count(1000)]


async def test_a_snapshot_is_where_a_crashed_run_goes_on() -> None:
    report = await crash_everywhere(takes_snapshots, 3)
    assert report.result == [1, 2, 3, 1001]


async def test_what_came_before_a_snapshot_is_not_replayed() -> None:
    reached = asyncio.Event()

    @holdfast.step
    async def waits() -> int:
        if not reached.is_set():
            reached.set()
            await asyncio.Event().wait()
        return 3

    @holdfast.workflow
    async def resumes() -> list[int]:
        state: list[int] | None = holdfast.recovered(list[int])
        if state is None:
            state = [await count(0), await count(1)]
            holdfast.stash(state)
        return [*state, await waits()]

    async with Environment([resumes]) as env:
        run = await env.start(resumes)
        await reached.wait()
        await env.crash()
        assert await env.result(run) == [1, 2, 3]
    assert [key.rpartition("/")[2] for key in env.started] == [
        "count#0",
        "count#1",
        "waits#0",
        "waits#0",
    ]


async def test_a_snapshot_belongs_into_the_body() -> None:
    @holdfast.workflow
    async def stashes_in_a_task() -> None:
        async def work() -> None:
            holdfast.stash(1)

        await asyncio.create_task(work())

    async with Environment([stashes_in_a_task]) as env:
        with pytest.raises(holdfast.RunFailed) as failed:
            await env.result(await env.start(stashes_in_a_task))
    assert isinstance(failed.value.__cause__, holdfast.BadValue)


# Deadlines and delays


@holdfast.workflow
async def sleeps_for(days: int) -> str:
    try:
        await holdfast.sleep(days * DAY)
    except asyncio.CancelledError:
        await count(0)
        raise
    return "slept"


@pytest.mark.parametrize("options", [LEAVES_AT_ONCE, WorkerOptions()], ids=["out", "in memory"])
async def test_a_run_that_is_not_done_by_its_deadline_fails(options: WorkerOptions) -> None:
    async with Environment([sleeps_for], worker_options=options) as env:
        run = await env.app.with_options(deadline=2 * DAY).start(sleeps_for, 3)
        await env.advance(DAY)
        await env.crash()
        with pytest.raises(holdfast.RunFailed) as failed:
            await env.result(run)
        row = await env.app.row(run.id)
        assert row.ended_at == row.created_at + 2 * DAY // timedelta(microseconds=1)
    assert isinstance(failed.value.__cause__, holdfast.DeadlineExceeded)
    assert env.started == ["/count#0"]  # it was allowed to clean up


async def test_a_run_that_is_done_before_its_deadline_is_not_touched_by_it() -> None:
    async with Environment([sleeps_for]) as env:
        run = await env.app.with_options(deadline=2 * DAY).start(sleeps_for, 1)
        assert await env.result(run) == "slept"
        await env.advance(3 * DAY)
        assert await run.status() is Status.COMPLETED
    workflow = sleeps_for.with_options(deadline=2 * DAY)
    assert (await crash_everywhere(workflow, 1)).result == "slept"
    assert isinstance((await crash_everywhere(workflow, 3)).result, holdfast.DeadlineExceeded)


async def test_a_deadline_can_pass_before_the_run_was_ever_claimed() -> None:
    async with Environment([sleeps_for]) as env:
        app = env.app.with_options(deadline=DAY, delay=2 * DAY)
        with pytest.raises(holdfast.RunFailed):
            await env.result(await app.start(sleeps_for, 1))


async def test_a_delayed_run_begins_when_its_time_has_come() -> None:
    async with Environment([sleeps_for]) as env:
        run = await env.app.with_options(delay=DAY).start(sleeps_for, 1)
        await env.advance(DAY / 2)
        assert await run.status() is Status.PENDING
        assert "to begin" in await run.why()
        assert await env.result(run) == "slept"
        row = await env.app.row(run.id)
        assert row.ended_at == row.created_at + 2 * DAY // timedelta(microseconds=1)


async def test_a_negative_delay_or_deadline_is_refused() -> None:
    async with Environment([sleeps_for]) as env:
        for option in ("delay", "deadline"):
            with pytest.raises(holdfast.BadArguments, match=option):
                env.app.with_options(**{option: -DAY})
        with pytest.raises(holdfast.BadArguments, match="no such run option: prioritty"):
            env.app.with_options(prioritty=1)


# Memory


@holdfast.workflow
async def counts_once() -> int:
    return await count(0)


@holdfast.workflow
async def counts_in_a_session() -> int:
    holdfast.session().append(await count(0))
    return 1


@holdfast.workflow
async def waits_for_an_answer() -> None:
    await holdfast.race(answer=holdfast.promise("answer"), late=timedelta(days=1))


@holdfast.workflow
async def waits_in_branches() -> None:
    async with asyncio.timeout(86_400):
        await asyncio.gather(asyncio.sleep(3_600), holdfast.receive())


@holdfast.step
async def asks() -> None:
    await holdfast.promise("answer")


@holdfast.workflow
async def waits_in_a_step() -> None:
    await asks()


@holdfast.workflow
async def waits_in_a_generator() -> None:
    async def counting() -> AsyncIterator[int]:
        for n in range(2):
            yield await count(n)

    async for _ in counting():
        await holdfast.promise("answer")


@holdfast.workflow
def waits_in_a_thread() -> None:
    holdfast.promise("answer").result()


@holdfast.workflow
def sleeps_in_a_thread() -> None:
    holdfast.sleep(DAY)


class Freed:
    """Knows which executions are still in memory, without the garbage collector."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = self.gone = 0
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()
        begin = Execution.begin

        def begins(run: Execution) -> None:
            self.made += 1
            # It may be a thread of the run's that lets go of it last.
            weakref.finalize(run, self._loop.call_soon_threadsafe, self._went)
            begin(run)

        monkeypatch.setattr(Execution, "begin", begins)

    def _went(self) -> None:
        self.gone += 1
        self._changed.set()

    async def all(self) -> None:
        async with asyncio.timeout(120):
            while self.gone < self.made:
                self._changed.clear()
                await self._changed.wait()


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize(
    ("workflow", "status"),
    [
        (counts_once, "completed"),
        (counts_in_a_session, "completed"),
        (waits_for_an_answer, "waiting"),
        (waits_in_branches, "waiting"),
        (waits_in_a_step, "waiting"),
        (waits_in_a_generator, "waiting"),
        (waits_in_a_thread, "waiting"),
        (sleeps_in_a_thread, "waiting"),
    ],
)
async def test_a_run_that_has_left_memory_is_freed_without_the_garbage_collector(
    workflow: holdfast.Workflow[[], object],
    status: str,
    cancelled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    freed = Freed(monkeypatch)
    async with Environment([workflow]) as env:
        gc.collect()
        gc.disable()
        try:
            run = await env.start(workflow.with_options(session="a"))
            await env.settle()
            assert await run.status() == status
            if cancelled and status == "waiting":
                await run.cancel()
                await env.settle()
                assert await run.status() == "cancelled"
            assert freed.made
            await freed.all()
        finally:
            gc.enable()
