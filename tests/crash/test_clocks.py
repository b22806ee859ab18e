"""Clocks that jump: timers follow the wall clock, leases do not."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import holdfast
from holdfast.clock import SystemClock
from holdfast.types import Kind, Status
from tests.crash.fleet import SECONDS_MAX


@holdfast.workflow
async def nap(hours: int) -> str:
    await holdfast.sleep(timedelta(hours=hours))
    return "rested"


class JumpingClock(SystemClock):
    """The wall clock of a machine on which somebody sets the time."""

    def __init__(self) -> None:
        self.offset = timedelta(0)

    def now(self) -> int:
        return super().now() + self.offset // timedelta(microseconds=1)


async def until(app: holdfast.Holdfast, run: holdfast.Run[str], status: Status) -> None:
    rung = asyncio.Event()
    stop = app.store.listen(rung.set)
    async with asyncio.timeout(SECONDS_MAX):
        while await run.status() is not status:
            await rung.wait()
            rung.clear()
    stop()


async def test_a_timer_is_due_by_the_wall_clock_however_it_jumps(url: str) -> None:
    clock = JumpingClock()
    async with holdfast.Holdfast(url, workflows=[nap], clock=clock) as app:
        app.store.poll_seconds = 1.0  # nobody tells of a jump: it is found out behind the timers
        app.worker._tenure.timekeeper.close()  # type: ignore[union-attr]
        run = await app.start(nap, 5)
        await until(app, run, Status.WAITING)
        clock.offset = timedelta(hours=-5)
        app.worker.wake()  # type: ignore[union-attr]
        other = await app.start(nap, 0)
        assert await other.result() == "rested"
        assert await run.status() is Status.WAITING, "it woke up early"
        clock.offset = timedelta(hours=6)
        async with asyncio.timeout(SECONDS_MAX):
            assert await run.result() == "rested"


async def test_a_jump_of_the_wall_clock_ends_no_lease(url: str) -> None:
    clocks = JumpingClock(), JumpingClock()
    release = asyncio.Event()
    begun = asyncio.Event()

    @holdfast.step
    async def hold() -> str:
        begun.set()
        await release.wait()
        return "held"

    @holdfast.workflow
    async def holding() -> str:
        return await hold()

    options = holdfast.WorkerOptions(lease=timedelta(seconds=30))
    async with (
        holdfast.Holdfast(url, workflows=[holding], clock=clocks[0], worker_options=options) as app,
        holdfast.Holdfast(
            url, workflows=[holding], clock=clocks[1], worker_options=options
        ) as peer,
    ):
        run = await app.start(holding)
        await begun.wait()
        before = {row.id for row in await app.workers()}
        for days in (30, -30):
            clocks[1].offset = timedelta(days=days)
            await peer.worker._reaper.look()  # type: ignore[union-attr]
        assert {row.id for row in await app.workers()} == before
        release.set()
        assert await run.result() == "held"
        assert sum(e.kind is Kind.CLAIM for e in await run.history()) == 1
