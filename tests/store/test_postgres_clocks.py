"""Machines whose clocks differ: their workers go by the server's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

import holdfast
from holdfast.clock import SystemClock
from holdfast.store import upgrade
from holdfast.store.base import Reservation
from holdfast.types import Status
from holdfast.worker.worker import Worker

SECOND = 1_000_000
APART = 3000 * SECOND
INTERVAL = 2000 * SECOND
SECONDS_MAX = 120


@holdfast.workflow
async def nothing() -> None: ...


class WrongClock(SystemClock):
    """The clock of a machine that is so many microseconds ahead."""

    def __init__(self, off: int) -> None:
        self.off = off

    def now(self) -> int:
        return super().now() + self.off


@pytest.fixture
async def apps(postgres_url: str) -> AsyncIterator[list[holdfast.Holdfast]]:
    """Of three machines: one is right, one ahead and one behind."""
    await upgrade(postgres_url)
    rate = holdfast.Rate(1, per=timedelta(microseconds=INTERVAL))
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                holdfast.Holdfast(
                    postgres_url,
                    workflows=[nothing],
                    queues=[holdfast.Queue("slow", rate=rate)],
                    clock=WrongClock(off),
                )
            )
            for off in (0, APART, -APART)
        ]


def worker_of(app: holdfast.Holdfast) -> Worker:
    assert app.worker is not None
    return app.worker


async def test_workers_whose_clocks_differ_agree_on_the_time(apps: list[holdfast.Holdfast]) -> None:
    right, *wrong = (app.clock.now() for app in apps)
    assert all(abs(now - right) < 100 * SECOND for now in wrong)


async def test_their_calls_are_not_closer_than_a_limiter_allows(
    apps: list[holdfast.Holdfast],
) -> None:
    call = Reservation("model", INTERVAL)
    waits = []
    for app in apps:
        at = await worker_of(app).limiters.reserve(call)
        waits.append(at - app.clock.now())
    assert waits[0] <= 0
    assert INTERVAL - 500 * SECOND < waits[1] <= INTERVAL
    assert 2 * INTERVAL - 500 * SECOND < waits[2] <= 2 * INTERVAL


async def test_nor_do_their_runs_begin_faster_than_a_queue_allows(
    apps: list[holdfast.Holdfast],
) -> None:
    runs = [await app.with_options(queue="slow").start(nothing) for app in apps]
    results = [asyncio.create_task(run.result()) for run in runs]
    async with asyncio.timeout(SECONDS_MAX):
        await asyncio.wait(results, return_when=asyncio.FIRST_COMPLETED)
    for app in apps:
        worker = worker_of(app)
        assert await app.store.claim(worker.id, ["nothing"], app.clock.now(), 10) == []
    statuses = sorted([await run.status() for run in runs])
    assert statuses == [Status.COMPLETED, Status.PENDING, Status.PENDING]
    for result in results:
        result.cancel()


async def test_a_run_from_a_machine_that_is_ahead_begins_at_once(
    apps: list[holdfast.Holdfast], postgres_url: str
) -> None:
    ahead = holdfast.Holdfast(
        postgres_url, workflows=[nothing], clock=WrongClock(APART), worker=False
    )
    async with ahead, asyncio.timeout(SECONDS_MAX):
        await (await ahead.start(nothing)).result()
    await (await apps[1].start(nothing)).result()


async def test_a_clock_that_is_put_right_is_gone_by_again(apps: list[holdfast.Holdfast]) -> None:
    clock = apps[1].clock
    assert isinstance(clock, WrongClock) and abs(clock.ahead - APART) < SECOND
    clock.off = 0
    for _ in range(100):  # an answer may come too late to say anything
        if await worker_of(apps[1])._tenure.timekeeper.look(clock):
            break
    assert abs(clock.ahead) < SECOND


async def test_a_difference_that_hardly_matters_is_left_alone(
    apps: list[holdfast.Holdfast],
) -> None:
    clock = apps[0].clock
    assert isinstance(clock, WrongClock) and clock.ahead == 0
    clock.off = 100_000
    await worker_of(apps[0])._tenure.timekeeper.look(clock)
    assert clock.ahead == 0
