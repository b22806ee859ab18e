"""A provider that asks for patience is left alone by all workers, also when who heard it dies."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import holdfast
from holdfast.clock import to_datetime
from holdfast.types import RunRow, Status
from tests.crash.agent import calling
from tests.crash.fleet import SECONDS_MAX, Fleet, Observer


async def waiting(app: holdfast.Holdfast, run: holdfast.Run[str]) -> RunRow:
    rung = asyncio.Event()
    stop = app.store.listen(rung.set)
    async with asyncio.timeout(SECONDS_MAX):
        while (row := await app.row(run.id)).status is not Status.WAITING:
            await rung.wait()
            rung.clear()
    stop()
    return row


async def test_what_a_killed_worker_was_told_by_a_provider_holds_for_the_others(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    observer.holds = lambda effect: True
    told = await fleet.add(memory_wait=0)
    began = datetime.now(UTC)
    runs = [await app.start(calling, "call")]
    (await observer.sees("call")).let_go("busy")
    await waiting(app, runs[0])
    await told.kill()
    await fleet.add(memory_wait=0)
    runs.append(await app.start(calling, "call"))
    for run in runs:
        row = await waiting(app, run)
        assert row.ready_at is not None
        assert to_datetime(row.ready_at) - began > timedelta(minutes=59)
    assert observer.names() == ["call"]
