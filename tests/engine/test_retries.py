"""Retries: they are in the journal, so that a crash resets neither the count nor the wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Retry, Status
from holdfast.clock import to_micros
from holdfast.testing import Environment, crash_everywhere
from holdfast.testing.crash_store import CrashStore
from holdfast.types import Entry, Kind

HOUR = timedelta(hours=1)
HOURLY = Retry(attempts=3, backoff=HOUR, max_delay=HOUR, jitter=0)


class Flaky:
    """Fails the given times, then returns how often it was called."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= len(self.errors):
            raise self.errors[self.calls - 1]
        return self.calls


def calling(work: Callable[[], Any], **options: Any) -> holdfast.Workflow[[], Any]:
    """A workflow of one step."""

    @holdfast.step(**options)
    async def unsteady() -> Any:
        return work()

    @holdfast.workflow
    async def calls() -> Any:
        return await unsteady()

    return calls


def attempts(entries: list[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.kind is Kind.ATTEMPT]


async def test_every_failed_try_is_journaled_with_its_error_and_when_the_next_is_due() -> None:
    flaky = Flaky(ConnectionError("one"), ConnectionError("two"))
    workflow = calling(flaky, retry=HOURLY)
    async with Environment([workflow]) as env:
        run = await env.start(workflow)
        assert await env.result(run) == 3
        entries = await run.history()
    first, second = attempts(entries)
    assert [first.attempt, second.attempt] == [1, 2]
    assert b"one" in (first.output or b"") and b"two" in (second.output or b"")
    assert first.due_at == first.at + to_micros(HOUR)
    (step,) = [entry for entry in entries if entry.kind is Kind.STEP]
    assert step.attempt == 3


async def test_a_crash_in_the_back_off_resets_neither_the_count_nor_the_remaining_wait() -> None:
    flaky = Flaky(*[ConnectionError("down")] * 5)
    workflow = calling(flaky, retry=HOURLY)
    async with Environment([workflow]) as env:
        run = await env.start(workflow)
        await env.advance(HOUR / 2)
        await env.crash()
        await env.advance(HOUR / 2 - timedelta(seconds=1))
        assert flaky.calls == 1
        await env.advance(timedelta(seconds=1))
        assert flaky.calls == 2
        await env.crash()
        await env.crash()
        with pytest.raises(holdfast.RunFailed, match="down"):
            await env.result(run)
    assert flaky.calls == 3


async def test_flaky_steps_survive_a_crash_anywhere() -> None:
    calls = 0

    def now_and_then() -> str:
        nonlocal calls
        calls += 1
        if calls % 3:
            raise ConnectionError("down")
        return "up"

    assert (await crash_everywhere(calling(now_and_then, retry=Retry(attempts=9)))).result == "up"


async def test_what_the_server_asks_for_is_waited_out() -> None:
    class Busy(Exception):
        status_code = 429
        headers = {"retry-after": "1800"}  # noqa: RUF012

    flaky = Flaky(Busy("busy"))
    workflow = calling(flaky)
    async with Environment([workflow]) as env:
        run = await env.start(workflow)
        await env.advance(HOUR / 2 - timedelta(seconds=1))
        assert flaky.calls == 1
        assert await env.result(run) == 2


@pytest.mark.parametrize(
    ("retry", "error"),
    [
        (HOURLY, holdfast.Terminal("for good")),
        (HOURLY, ValueError("a programming error")),
        (Retry(give_up_on=(ConnectionError,)), ConnectionError("given up on")),
        (Retry(retry_on=(KeyError,)), ConnectionError("not listed")),
    ],
    ids=["terminal", "by default", "give_up_on", "retry_on"],
)
async def test_errors_that_are_not_retried_fail_at_once(retry: Retry, error: Exception) -> None:
    flaky = Flaky(error)
    workflow = calling(flaky, retry=retry)
    async with Environment([workflow]) as env:
        run = await env.start(workflow)
        with pytest.raises(holdfast.RunFailed) as failed:
            await env.result(run)
        assert attempts(await run.history()) == []
    assert type(failed.value.__cause__) is type(error)
    assert flaky.calls == 1


async def test_an_error_that_is_listed_is_retried_although_it_is_not_by_default() -> None:
    workflow = calling(Flaky(ValueError("listed")), retry=Retry(retry_on=(ValueError,)))
    async with Environment([workflow]) as env:
        assert await env.result(await env.start(workflow)) == 2


# Time-outs


async def test_an_async_step_that_takes_too_long_is_cancelled_and_tried_again() -> None:
    tries = 0
    cancelled = asyncio.Event()

    @holdfast.step(timeout=timedelta(milliseconds=20), retry=Retry(attempts=2))
    async def slow_once() -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
        return "in time"

    @holdfast.workflow
    async def waits() -> str:
        return await slow_once()

    async with Environment([waits]) as env:
        run = await env.start(waits)
        assert await env.result(run) == "in time"
        (failed,) = attempts(await run.history())
    assert cancelled.is_set()
    assert b"StepTimedOut" in (failed.output or b"")


async def test_a_sync_step_that_takes_too_long_fails_with_its_name() -> None:
    release = threading.Event()

    @holdfast.step(timeout=timedelta(milliseconds=20), retry=Retry(attempts=1))
    def stuck() -> None:
        release.wait()

    @holdfast.workflow
    async def waits() -> str:
        try:
            await asyncio.to_thread(stuck)
        except TimeoutError as error:
            return str(error)
        finally:
            release.set()
        return "in time"

    async with Environment([waits]) as env:
        assert "/stuck#0" in await env.result(await env.start(waits))


# When nothing helps


async def test_a_fallback_takes_the_place_of_an_exhausted_step() -> None:
    def fall_back(name: str) -> str:
        return f"no {name}"

    @holdfast.step(retry=Retry(attempts=2, fallback=fall_back))
    async def find(name: str) -> str:
        raise ConnectionError("down")

    @holdfast.workflow
    async def finds() -> str:
        return await find("answer")

    report = await crash_everywhere(finds)
    assert report.result == "no answer"
    assert dict(report.steps) == {"/find#0": 3}


async def test_a_fallback_that_fails_is_the_steps_recorded_outcome() -> None:
    calls = 0

    async def fall_back() -> None:
        nonlocal calls
        calls += 1
        raise ValueError(f"no way out {calls}")

    @holdfast.step(retry=Retry(attempts=1, fallback=fall_back))
    async def find() -> None:
        raise ConnectionError("down")

    @holdfast.step
    async def note(text: str) -> str:
        return text

    @holdfast.workflow
    async def finds() -> str:
        try:
            await find()
        except ValueError as error:
            return await note(str(error))
        return "found"

    await crash_everywhere(finds)
    calls = 0
    async with Environment([finds]) as env:
        run = await env.start(finds)
        assert await env.result(run) == "no way out 1"
        (found, _) = [entry for entry in await run.history() if entry.kind is Kind.STEP]
    assert found.failed


async def test_an_exhausted_step_can_park_its_run_until_somebody_resumes_it() -> None:
    flaky = Flaky(*[ConnectionError("down")] * 3)
    workflow = calling(flaky, retry=Retry(attempts=2, exhausted="park"))
    async with Environment([workflow]) as env:
        run = await env.start(workflow)
        with pytest.raises(holdfast.RunHalted, match="failed 2 times"):
            await env.result(run)
        assert await run.status() is Status.PARKED
        assert f"holdfast resume {run.id}" in await run.why()
        await run.resume()
        assert await env.result(run) == 4  # two more tries, of which the second did it
    assert flaky.calls == 4


async def test_a_crash_between_the_last_try_and_the_parking_does_not_lose_the_parking() -> None:
    workflow = calling(
        Flaky(*[ConnectionError("down")] * 9), retry=Retry(attempts=1, exhausted="park")
    )
    store = CrashStore("parked")
    store.arm(2, at_once=True)  # the claim and the failed try
    async with Environment([workflow], store=store) as env:
        start = asyncio.create_task(env.app.with_options(id="parked").start(workflow))
        await store.crashed.wait()
        await start
        await env.die()
        store.arm()
        await env.app.open()
        with pytest.raises(holdfast.RunHalted, match="ConnectionError: down"):
            await env.result(env.app.get("parked"))
    await store.discard()
    assert env.started == ["/unsteady#0"]


async def test_a_parked_step_inside_another_step_parks_the_run() -> None:
    flaky = Flaky(ConnectionError("down"))

    @holdfast.step(retry=Retry(attempts=1, exhausted="park"))
    async def inner() -> int:
        return flaky()

    @holdfast.step
    async def outer() -> int:
        return await inner()

    @holdfast.workflow
    async def nests() -> int:
        return await outer()

    async with Environment([nests]) as env:
        run = await env.start(nests)
        with pytest.raises(holdfast.RunHalted, match="/outer#0/inner#0"):
            await env.result(run)
        await run.resume()
        assert await env.result(run) == 2


async def test_a_step_out_of_tries_that_lost_a_race_does_not_park_the_run() -> None:
    out_of_tries = asyncio.Event()

    @holdfast.step(retry=Retry(attempts=1, exhausted="park"))
    async def hopeless() -> None:
        out_of_tries.set()
        raise ConnectionError("down")

    @holdfast.step
    async def slower() -> int:
        await out_of_tries.wait()
        return 1

    @holdfast.workflow
    async def races() -> str:
        winner, _ = await holdfast.race(hopeless=hopeless(), slower=slower())
        await holdfast.sleep(HOUR)
        return winner

    async with Environment([races]) as env:
        run = await env.start(races)
        await env.settle()
        assert await run.status() is Status.WAITING
        assert await env.result(run) == "slower"


async def test_tries_that_an_inner_step_exhausted_are_not_multiplied_by_the_outer_one() -> None:
    @holdfast.step(retry=Retry(attempts=3))
    async def inner() -> None:
        raise ConnectionError("down")

    @holdfast.step(retry=Retry(attempts=3))
    async def outer() -> None:
        await inner()

    @holdfast.workflow
    async def nests() -> None:
        await outer()

    async with Environment([nests]) as env:
        with pytest.raises(holdfast.RunFailed, match="down"):
            await env.result(await env.start(nests))
    assert env.started.count("/outer#0/inner#0") == 3


async def test_an_outer_step_that_is_tried_again_keeps_what_succeeded_inside() -> None:
    flaky = Flaky(ConnectionError("down"))

    @holdfast.step
    async def inner(number: int) -> int:
        return number

    @holdfast.step(retry=Retry(attempts=2))
    async def outer() -> int:
        return await inner(1) + await inner(2) + flaky()

    @holdfast.workflow
    async def nests() -> int:
        return await outer()

    async with Environment([nests]) as env:
        assert await env.result(await env.start(nests)) == 5
    assert env.started == ["/outer#0", "/outer#0/inner#0", "/outer#0/inner#1", "/outer#0"]


@pytest.mark.parametrize("crashes", [0, 1])
async def test_a_run_can_be_cancelled_during_a_back_off(crashes: int) -> None:
    flaky = Flaky(*[ConnectionError("down")] * 9)
    workflow = calling(flaky, retry=HOURLY)
    async with Environment([workflow]) as env:
        run = await env.start(workflow)
        await env.settle()
        for _ in range(crashes):
            await env.crash()
        await run.cancel()
        await env.settle()
        assert await run.status() is Status.CANCELLED
        with pytest.raises(holdfast.RunCancelled):
            await run.result()
    assert flaky.calls == 1
