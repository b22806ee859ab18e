"""Limiters of steps: shared by all, paced by the clock, and no crash makes them admit more."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import FakeClock, Limit, Retry, RunCancelled, Status
from holdfast.clock import Micros, to_micros
from holdfast.errors import BadArguments, StoreUnavailable
from holdfast.store.base import Reservation
from holdfast.testing import Environment, crash_everywhere
from holdfast.testing.kept_store import KeptStore
from holdfast.types import Kind
from holdfast.worker import limiters

MINUTE = timedelta(minutes=1)


class Provider:
    """What steps call; notes when, in seconds since the test began."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.began = self.clock.now()
        self.calls: list[int] = []
        self.errors: list[Exception] = []

    def call(self) -> None:
        self.calls.append((self.clock.now() - self.began) // 1_000_000)
        if self.errors:
            raise self.errors.pop(0)


class TooMany(Exception):
    """As SDKs raise it: with the response's headers."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"429, retry after {seconds}")
        self.headers = {"Retry-After": str(seconds)}


def caller(provider: Provider, count: int = 1, **options: Any) -> holdfast.Workflow[[], None]:
    options.setdefault("limit", Limit("api", per_minute=2))

    @holdfast.step(**options)
    async def ask(n: int) -> None:
        provider.call()

    @holdfast.workflow
    async def calls() -> None:
        await asyncio.gather(*(ask(n) for n in range(count)))

    return calls


class CountingStore(KeptStore):
    """Counts how often it is asked for places."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    async def reserve(self, reservations: Sequence[Reservation], now: Micros) -> list[Micros]:
        self.asked.append(len(reservations))
        return await self._kept.reserve(reservations, now)


async def test_steps_begin_no_faster_than_their_limiter_says() -> None:
    provider = Provider()
    workflow = caller(provider, 4)
    async with Environment([workflow], clock=provider.clock) as env:
        first, second = await env.start(workflow), await env.start(workflow)
        await env.result(first)
        await env.result(second)
    assert provider.calls == [30 * n for n in range(8)]


async def test_a_burst_goes_at_once() -> None:
    provider = Provider()
    workflow = caller(provider, 5, limit=Limit("api", per_hour=60, burst=3))
    async with Environment([workflow], clock=provider.clock) as env:
        await env.result(await env.start(workflow))
    assert provider.calls == [0, 0, 0, 60, 120]


async def test_a_wait_for_a_turn_suspends_the_run_says_so_and_is_no_try() -> None:
    provider = Provider()
    workflow = caller(provider, 2, retry=Retry(attempts=1))
    async with Environment([workflow], clock=provider.clock) as env:
        run = await env.start(workflow)
        await env.settle()
        row = await env.app.row(run.id)
        assert row.status is Status.WAITING
        assert "the turn of /ask" in (row.reason or "") and "'api'" in (row.reason or "")
        assert row.ready_at == provider.began + to_micros(MINUTE / 2)
        await env.result(run)
        steps = [e for e in await env.app.history(run.id) if e.kind is Kind.STEP]
        assert [(e.attempt, e.failed) for e in steps] == [(1, False), (1, False)]


async def test_a_crash_in_the_wait_neither_loses_the_place_nor_takes_another() -> None:
    provider = Provider()
    workflow = caller(provider, 3)
    async with Environment([workflow], clock=provider.clock) as env:
        run = await env.start(workflow)
        for _ in range(4):
            await env.advance(timedelta(seconds=10))
            await env.crash()
        await env.result(run)
        assert provider.calls == [0, 30, 60]
        assert await env.store.reserve([Reservation("api", 1)], 0) == [
            provider.began + to_micros(1.5 * MINUTE)
        ]


async def test_a_workflow_with_limits_survives_a_crash_everywhere() -> None:
    @holdfast.step(limit=Limit("api", per_minute=2))
    async def ask(n: int) -> int:
        return n

    @holdfast.workflow
    async def asks() -> int:
        return sum(await asyncio.gather(*(ask(n) for n in range(3)))) + await ask(3)

    report = await crash_everywhere(asks)
    assert report.result == 6 and report.crashes > 8


async def test_cancel_works_during_the_wait() -> None:
    provider = Provider()
    workflow = caller(provider, 2)
    async with Environment([workflow], clock=provider.clock) as env:
        run = await env.start(workflow)
        await env.settle()
        await env.app.cancel(run.id)
        with pytest.raises(RunCancelled):
            await env.result(run)
    assert provider.calls == [0]


async def test_a_retry_after_holds_everybody_off_also_those_with_a_place() -> None:
    provider = Provider()
    provider.errors = [TooMany(600)]
    eager = caller(provider, 2, retry=Retry(backoff=timedelta(0), jitter=0))
    async with Environment([eager], clock=provider.clock) as env:
        first = await env.start(eager)
        await env.settle()  # the second of its steps has a place at 30 s
        await env.crash()
        late = await env.start(eager)
        await env.result(first)
        await env.result(late)
    assert provider.calls[0] == 0
    rest = provider.calls[1:]
    assert rest[0] >= 600 and len(rest) == 4
    assert all(after - before >= 30 for before, after in itertools.pairwise(rest))


class ShyStore(KeptStore):
    """Is out of reach when a limiter is to be held off, at first."""

    failures = 2

    async def hold_off(self, name: str, until: int) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("there is no connection now")
        await self._kept.hold_off(name, until)


async def test_to_insist_on_holding_a_limiter_off_is_no_timer_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limiters, "PAUSE_SECONDS", 0.001)
    provider, store = Provider(), ShyStore()
    provider.errors = [TooMany(600)]
    eager = caller(provider, retry=Retry(backoff=timedelta(0), jitter=0))
    async with Environment([eager], clock=provider.clock, store=store) as env:
        run = await env.start(eager)
        await env.result(run)
        assert store.failures == 0 and provider.calls == [0, 600]
        timers = [e.key for e in await env.app.history(run.id) if e.kind is Kind.TIMER]
        assert timers == []
    await store.discard()


async def test_a_terminal_failure_holds_others_off_too() -> None:
    provider = Provider()
    provider.errors = [TooMany(600)]
    once = caller(provider, retry=Retry(attempts=1))
    async with Environment([once], clock=provider.clock) as env:
        runs = [await env.start(once), await env.start(once)]
        for run in runs:
            await env.ended(run.id)
    assert provider.calls == [0, 600]


async def test_limiters_may_have_keys() -> None:
    provider = Provider()
    one_each = Limit("api", per_hour=1, key=lambda tenant, n: tenant)
    fixed = Limit("api", per_hour=1, key="alice")

    @holdfast.step(limit=one_each)
    async def ask(tenant: str, n: int) -> None:
        provider.call()

    @holdfast.step(limit=fixed)
    async def ask_alice() -> None:
        provider.call()

    @holdfast.workflow
    async def asks() -> None:
        await asyncio.gather(ask("alice", 1), ask("bob", n=2))
        await ask("alice", 3)
        await ask_alice()

    async with Environment([asks], clock=provider.clock) as env:
        await env.result(await env.start(asks))
    assert provider.calls == [0, 0, 3600, 7200]


@pytest.mark.parametrize("key", [["a", "list"], {"un": "hashable"}, 1.5, True, b"bytes", "x" * 600])
async def test_a_key_that_makes_no_sense_fails_the_step_by_name(key: Any) -> None:
    provider = Provider()
    workflow = caller(provider, limit=Limit("api", per_hour=1, key=lambda n: key))
    async with Environment([workflow], clock=provider.clock) as env:
        run = await env.start(workflow)
        row = await env.ended(run.id)
        assert row.status is Status.FAILED
        failed = [e for e in await env.app.history(run.id) if e.kind is Kind.STEP]
        assert [entry.failed for entry in failed] == [True]
        assert b"BadArguments" in (row.output or b"") and b"'api'" in (row.output or b"")
    assert provider.calls == []


async def test_sync_steps_and_runs_without_a_journal_are_limited_too() -> None:
    provider = Provider()

    @holdfast.step(limit=Limit("api", per_minute=2))
    def ask() -> None:
        provider.call()

    @holdfast.workflow
    async def asks() -> None:
        await asyncio.to_thread(ask)
        await asyncio.to_thread(ask)

    async with Environment([asks], clock=provider.clock) as env:
        await env.result(await env.start(asks))
        run = await env.app.with_options(durability="none").start(asks)
        ended = asyncio.ensure_future(run.result())
        while not ended.done():
            await asyncio.sleep(0)
            provider.clock.advance_to_next()
        await ended
    assert provider.calls == [0, 30, 60, 90]


async def test_what_is_asked_at_once_is_asked_in_one_call_and_without_a_limit_not_at_all() -> None:
    provider = Provider()
    limited = caller(provider, 20, limit=Limit("api", per_second=1000, burst=100))
    free = caller(provider, 20, limit=None)
    free.name = "free"
    store = CountingStore()
    async with Environment([limited, free], clock=provider.clock, store=store) as env:
        await env.result(await env.start(free))
        assert store.asked == []
        await env.result(await env.start(limited))
        assert sum(store.asked) == 20 and len(store.asked) <= 2
    await store.discard()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Limit("api"),
        lambda: Limit("", per_minute=1),
        lambda: Limit("api", per_minute=0),
        lambda: Limit("api", per_minute=-5),
        lambda: Limit("api", per_minute=float("nan")),
        lambda: Limit("api", per_minute=float("inf")),
        lambda: Limit("api", per_minute="many"),  # type: ignore[arg-type]
        lambda: Limit("api", per_minute=1, per_hour=1),
        lambda: Limit("api", per_minute=1, burst=0),
        lambda: Limit("api", per_minute=1, key=5),  # type: ignore[arg-type]
        lambda: Limit("api", per_minute=1, key=""),
        lambda: holdfast.step(limit="api")(lambda: None),  # type: ignore[call-overload]
    ],
)
def test_what_makes_no_sense_is_refused_by_name(wrong) -> None:
    with pytest.raises(BadArguments):
        wrong()
