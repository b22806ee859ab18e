"""Steps without tries left: what becomes of the fallback, and what a parked run goes on with."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Retry, Status, WorkerOptions
from holdfast.testing import Environment, crash_everywhere

HOUR = timedelta(hours=1)


@holdfast.step(retry=Retry(attempts=1, exhausted="park"))
async def hopeless() -> str:
    raise ConnectionError("down")


@holdfast.step
async def note(text: str) -> str:
    return text


# Fallbacks


class Failing:
    """A step that fails each time, and a fallback that waits to be let go on."""

    def __init__(self, error: Exception) -> None:
        self.calls: list[str] = []
        self.fell_back, self.may_end = asyncio.Event(), asyncio.Event()

        async def fall_back() -> str:
            self.calls.append("fallback")
            self.fell_back.set()
            await self.may_end.wait()
            return "instead"

        @holdfast.step(retry=Retry(attempts=2, backoff=timedelta(0), fallback=fall_back))
        async def fails() -> str:
            self.calls.append("try")
            raise error

        @holdfast.workflow
        async def falls_back() -> str:
            return await fails()

        self.workflow = falls_back


@pytest.mark.parametrize(
    ("error", "tries"), [(ConnectionError("down"), 2), (ValueError("hopeless"), 1)]
)
async def test_a_crash_in_a_fallback_does_not_repeat_the_last_try(
    error: Exception, tries: int
) -> None:
    failing = Failing(error)
    async with Environment([failing.workflow]) as env:
        run = await env.start(failing.workflow)
        await failing.fell_back.wait()
        await env.crash()
        failing.may_end.set()
        assert await env.result(run) == "instead"
    assert failing.calls == [*["try"] * tries, "fallback", "fallback"]


async def test_a_rerun_tries_a_step_again_whose_fallback_failed() -> None:
    failures = 2

    @holdfast.step
    async def inside() -> str:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise ValueError(f"{failures} left")
        return "well"

    async def fall_back() -> str:
        return await inside()

    @holdfast.step(retry=Retry(attempts=1, fallback=fall_back))
    async def fails() -> str:
        return await inside()

    @holdfast.workflow
    async def falls_back() -> str:
        return await fails()

    async with Environment([falls_back]) as env:
        run = await env.start(falls_back)
        with pytest.raises(holdfast.RunFailed, match="0 left"):
            await env.result(run)
        await run.rerun()
        assert await env.result(run) == "well"
        assert [key for key in env.started if key.endswith("fails#0")] == ["/fails#0"] * 3


async def test_a_run_that_is_paused_in_a_fallback_does_not_try_the_step_again() -> None:
    calls: list[str] = []

    async def fall_back() -> str:
        calls.append("fallback")
        return await holdfast.promise("answer", str)

    @holdfast.step(retry=Retry(attempts=1, fallback=fall_back))
    async def fails() -> str:
        calls.append("try")
        raise ConnectionError("down")

    @holdfast.workflow
    async def falls_back() -> str:
        return await fails()

    async with Environment([falls_back]) as env:
        run = await env.start(falls_back)
        await env.settle()
        await run.pause()
        await run.resume()
        await env.settle()
        await run.resolve("answer", "instead")
        assert await env.result(run) == "instead"
    assert calls.count("try") == 1


# Paused in a back-off


class Unsteady:
    """A step that fails so many times, and what is tried next to it."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

        @holdfast.step(retry=Retry(attempts=2, backoff=HOUR, max_delay=HOUR, jitter=0))
        async def unsteady() -> str:
            self.failures -= 1
            if self.failures >= 0:
                raise ConnectionError("down")
            return "done"

        @holdfast.workflow
        async def goes_on() -> str:
            return await unsteady()

        self.workflow = goes_on


async def test_a_pause_resets_neither_the_count_of_tries_nor_the_wait_for_the_next() -> None:
    unsteady = Unsteady(failures=2)
    async with Environment([unsteady.workflow]) as env:
        run = await env.start(unsteady.workflow)
        await env.advance(HOUR / 2)
        await run.pause()
        await env.settle()
        assert await run.status() is Status.PAUSED
        await run.resume()
        await env.advance(HOUR / 4)
        assert unsteady.failures == 1, "its next try is not due yet"
        await env.advance(HOUR / 2)
        with pytest.raises(holdfast.RunFailed, match="down"):
            await run.result()


async def test_a_resumed_run_grants_new_tries_only_to_steps_without_any() -> None:
    unsteady = Unsteady(failures=1)

    @holdfast.workflow
    async def both() -> None:
        await asyncio.gather(hopeless(), unsteady.workflow())

    async with Environment([both]) as env:
        run = await env.start(both)
        await env.settle()
        await run.resume()
        await env.settle()
        assert env.started.count("/hopeless#0") == 2
        assert sum("unsteady" in key for key in env.started) == 1


# Parked, and time goes on


@holdfast.workflow
async def times_out() -> str:
    try:
        async with asyncio.timeout(3600):
            return await hopeless()
    except TimeoutError:
        return await note("timed out")


@holdfast.workflow
async def races_a_timer() -> str:
    winner, _ = await holdfast.race(work=hopeless(), late=holdfast.sleep(HOUR))
    return await note(winner)


@pytest.mark.parametrize("workflow", [times_out, races_a_timer])
async def test_a_timer_around_a_parked_step_goes_off(
    workflow: holdfast.Workflow[[], str],
) -> None:
    async with Environment([workflow]) as env:
        run = await env.start(workflow)
        await env.settle()
        assert await run.status() is Status.PARKED
        why = await run.why()
        assert "which may come first, at the latest" in why and "holdfast resume" in why
        await env.crash()
        await env.advance(HOUR / 2)
        assert await run.status() is Status.PARKED
        await env.advance(HOUR)
        assert await run.result() in ("timed out", "late")


@pytest.mark.parametrize("workflow", [times_out, races_a_timer])
async def test_a_timer_around_a_parked_step_goes_off_whatever_crashes(
    workflow: holdfast.Workflow[[], str],
) -> None:
    stays = WorkerOptions(memory_wait=2 * HOUR)
    report = await crash_everywhere(workflow, worker_options=stays)
    assert report.result in ("timed out", "late")


async def test_a_resumed_run_gives_a_step_new_tries_before_its_timer_goes_off() -> None:
    failures = 1

    @holdfast.step(retry=Retry(attempts=1, exhausted="park"))
    async def fails_once() -> str:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise ConnectionError("down")
        return "done"

    @holdfast.workflow
    async def is_quick_enough() -> str:
        async with asyncio.timeout(3600):
            return await fails_once()

    async with Environment([is_quick_enough]) as env:
        run = await env.start(is_quick_enough)
        await env.advance(HOUR / 2)
        await run.resume()
        assert await env.result(run) == "done"


async def test_a_fork_of_a_run_that_was_resumed_can_be_resumed_too() -> None:
    failures = 2

    @holdfast.step(retry=Retry(attempts=1, exhausted="park"))
    async def fails() -> str:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise ConnectionError("down")
        return "done"

    @holdfast.workflow
    async def fails_and_fails() -> str:
        await fails()
        await note("between")
        return await fails()

    async with Environment([fails_and_fails]) as env:
        run = await env.start(fails_and_fails)
        for _ in range(2):
            await env.settle()
            assert await run.status() is Status.PARKED
            await run.resume()
        assert await env.result(run) == "done"
        failures = 1
        forked = await run.fork(before="/fails#1")
        await env.settle()
        assert await forked.status() is Status.PARKED
        await forked.resume()
        assert await env.result(forked) == "done"


@holdfast.workflow
async def waits_beside() -> Any:
    async def ask() -> str:
        return await note(await holdfast.promise("answer", str))

    return await holdfast.race(work=hopeless(), answer=ask())


async def test_an_answer_reaches_a_run_that_is_parked() -> None:
    async with Environment([waits_beside]) as env:
        run = await env.start(waits_beside)
        await env.settle()
        assert await run.status() is Status.PARKED
        assert "which may come first." in await run.why()
        await run.send("nobody waits for this")
        await env.settle()
        assert await run.status() is Status.PARKED
        await run.resolve("answer", "yes")
        await env.settle()
        assert await run.result() == ("answer", "yes")


async def test_a_run_that_is_parked_and_paused_stays_paused_when_mail_comes() -> None:
    async with Environment([waits_beside]) as env:
        run = await env.start(waits_beside)
        await env.settle()
        await run.pause()
        await run.resolve("answer", "yes")
        await env.settle()
        assert await run.status() is Status.PAUSED
        await run.resume()
        await env.settle()
        assert await run.status() is Status.COMPLETED


async def test_a_parked_step_inside_a_step_is_ended_by_the_outer_ones_time_out() -> None:
    @holdfast.step(timeout=timedelta(milliseconds=50), retry=Retry(attempts=1))
    async def outer() -> str:
        return await hopeless()

    @holdfast.workflow
    async def nests() -> str:
        try:
            return await outer()
        except holdfast.StepTimedOut:
            return await note("timed out")

    async with Environment([nests]) as env:
        run = await env.start(nests)
        assert await env.result(run) == "timed out"


async def test_a_run_whose_only_wait_is_a_parked_step_ignores_messages() -> None:
    @holdfast.workflow
    async def only_parks() -> str:
        return await hopeless()

    async with Environment([only_parks]) as env:
        run = await env.start(only_parks)
        await env.settle()
        claims = len(await run.history())
        await run.send("hello")
        await env.settle()
        assert len(await run.history()) == claims, "nobody took it up"
