"""A run ends at its deadline, whether anybody executes it or not."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Status
from holdfast.testing import Environment

HOUR = timedelta(hours=1)
SOON = timedelta(milliseconds=50)
SECONDS_MAX = 30


@holdfast.step
async def note(text: str) -> str:
    return text


@holdfast.step
async def other(text: str) -> str:
    return text


@holdfast.workflow
async def cleans_up() -> None:
    await note("begin")
    try:
        await holdfast.sleep(10 * HOUR)
    finally:
        await note("clean")


class Down(Exception):
    pass


@holdfast.step(retry=holdfast.Retry(attempts=1, exhausted="park"))
async def park() -> None:
    raise Down("down")


def steps(env: Environment) -> list[str]:
    return [key.rpartition("/")[2].partition("#")[0].rpartition(".")[2] for key in env.started]


async def expect_too_late(env: Environment, run: Any) -> None:
    assert await run.status() is Status.FAILED
    with pytest.raises(holdfast.RunFailed, match="deadline") as failure:
        await env.result(run)
    assert isinstance(failure.value.__cause__, holdfast.DeadlineExceeded)


# Nobody has begun it


async def test_a_deadline_that_has_come_already_is_one() -> None:
    async with Environment([cleans_up]) as env:
        run = await env.app.with_options(deadline=timedelta(0)).start(cleans_up)
        await env.settle()
        await expect_too_late(env, run)
        assert env.started == []


async def test_a_run_that_is_to_begin_after_its_deadline_never_does() -> None:
    async with Environment([cleans_up]) as env:
        run = await env.app.with_options(deadline=HOUR, delay=3 * HOUR).start(cleans_up)
        await env.advance(2 * HOUR)
        await expect_too_late(env, run)
        assert env.started == []


async def test_a_run_behind_another_of_its_session_ends_at_its_deadline() -> None:
    async with Environment([cleans_up]) as env:
        app = env.app.with_options(session="s")
        first = await app.start(cleans_up)
        behind = await app.with_options(deadline=HOUR).start(cleans_up)
        await env.advance(2 * HOUR)
        await expect_too_late(env, behind)
        assert await first.status() is Status.WAITING
        assert steps(env) == ["note"]


async def test_a_run_whose_worker_is_full_ends_at_its_deadline() -> None:
    go_on = asyncio.Event()

    @holdfast.step
    async def busy() -> None:
        await go_on.wait()

    @holdfast.workflow
    async def stuck() -> None:
        await busy()

    full = holdfast.WorkerOptions(concurrency=1)
    async with holdfast.Holdfast(
        ":memory:", workflows=[stuck, cleans_up], worker_options=full
    ) as app:
        await app.start(stuck)
        run = await app.with_options(deadline=SOON).start(cleans_up)
        with pytest.raises(holdfast.RunFailed, match="deadline"):
            await asyncio.wait_for(run.result(), SECONDS_MAX)
        go_on.set()


async def test_a_run_that_was_paused_before_it_began_ends_at_its_deadline() -> None:
    async with Environment([cleans_up]) as env:
        run = await env.app.with_options(deadline=2 * HOUR, delay=HOUR).start(cleans_up)
        await run.pause()
        await env.advance(3 * HOUR)
        await expect_too_late(env, run)
        assert env.started == []


async def test_a_parent_hears_that_its_child_never_began() -> None:
    @holdfast.workflow
    async def parent() -> str:
        try:
            await holdfast.child(cleans_up.with_options(deadline=HOUR, delay=2 * HOUR))
        except holdfast.RunFailed as error:
            return type(error.__cause__).__name__
        return "done"

    async with Environment([parent, cleans_up]) as env:
        run = await env.start(parent)
        await env.advance(3 * HOUR)
        assert await env.result(run) == "DeadlineExceeded"


async def test_a_run_that_never_began_can_be_run_again_without_its_deadline() -> None:
    async with Environment([cleans_up]) as env:
        run = await env.app.with_options(deadline=HOUR, delay=3 * HOUR).start(cleans_up)
        await env.advance(2 * HOUR)
        await env.app.rerun(run.id)
        await env.advance(11 * HOUR)
        assert await run.status() is Status.COMPLETED


# It is halted


async def test_a_paused_run_unwinds_at_its_deadline() -> None:
    async with Environment([cleans_up]) as env:
        run = await env.app.with_options(deadline=HOUR / 2).start(cleans_up)
        await env.settle()
        await run.pause()
        await env.advance(HOUR / 4)
        assert await run.status() is Status.PAUSED
        await env.advance(HOUR / 2)
        await expect_too_late(env, run)
        assert steps(env) == ["note", "note"]


async def test_a_parked_run_unwinds_at_its_deadline() -> None:
    @holdfast.workflow
    async def parks() -> None:
        try:
            await park()
        finally:
            await note("clean")

    async with Environment([parks]) as env:
        run = await env.app.with_options(deadline=HOUR).start(parks)
        await env.settle()
        assert await run.status() is Status.PARKED
        await env.advance(2 * HOUR)
        await expect_too_late(env, run)
        assert steps(env) == ["park", "note"]


async def test_a_diverged_run_ends_at_its_deadline() -> None:
    first = [note]

    @holdfast.workflow
    async def changing() -> None:
        await first[0]("begin")
        await holdfast.promise("answer", int)

    async with Environment([changing]) as env:
        run = await env.app.with_options(deadline=HOUR).start(changing)
        await env.settle()
        first[0] = other
        await env.crash()
        await run.resolve("answer", 1)
        await env.settle()
        assert await run.status() is Status.PARKED
        await env.advance(2 * HOUR)
        await expect_too_late(env, run)


# It is on its way out already


async def test_a_run_that_parks_while_it_unwinds_stays_parked_until_it_is_resumed() -> None:
    down = [True]

    @holdfast.step(retry=holdfast.Retry(attempts=1, exhausted="park"))
    async def compensate() -> None:
        if down[0]:
            raise Down("down")

    @holdfast.workflow
    async def unwinds() -> None:
        try:
            await holdfast.sleep(10 * HOUR)
        finally:
            await compensate()

    async with Environment([unwinds]) as env:
        run = await env.app.with_options(deadline=HOUR).start(unwinds)
        await env.advance(2 * HOUR)
        assert await run.status() is Status.PARKED
        await env.advance(2 * HOUR)
        assert await run.status() is Status.PARKED
        assert steps(env) == ["compensate"]
        down[0] = False
        await run.resume()
        await env.settle()
        await expect_too_late(env, run)


async def test_a_cancelled_run_cleans_up_beyond_its_deadline() -> None:
    @holdfast.workflow
    async def slow_to_leave() -> None:
        try:
            await holdfast.sleep(10 * HOUR)
        finally:
            await holdfast.sleep(3 * HOUR)
            await note("clean")

    async with Environment([slow_to_leave]) as env:
        run = await env.app.with_options(deadline=HOUR).start(slow_to_leave)
        await env.settle()
        await run.cancel()
        await env.advance(2 * HOUR)
        assert steps(env) == []
        await env.advance(2 * HOUR)
        assert await run.status() is Status.CANCELLED
        assert steps(env) == ["note"]


async def test_a_run_that_waits_to_be_paused_unwinds_at_its_deadline() -> None:
    begun = asyncio.Event()
    noted: list[str] = []

    @holdfast.step
    async def long() -> None:
        begun.set()
        await asyncio.Event().wait()

    @holdfast.step
    async def clean() -> None:
        noted.append("clean")

    @holdfast.workflow
    async def works() -> None:
        try:
            await long()
        finally:
            await clean()

    async with Environment([works]) as env:
        run = await env.app.with_options(deadline=HOUR).start(works)
        await begun.wait()
        await run.pause()  # at the next step, which does not come
        (execution,) = env.worker.runs.values()
        while not execution.inbox.seen:  # noqa: ASYNC110
            await asyncio.sleep(0)
        env.clock.advance(HOUR)  # type: ignore[union-attr]
        with pytest.raises(holdfast.RunFailed, match="deadline"):
            await asyncio.wait_for(run.result(), SECONDS_MAX)
        assert noted == ["clean"]


# Cancelling what nobody has begun


async def test_a_run_behind_another_of_its_session_is_cancelled_at_once() -> None:
    async with Environment([cleans_up]) as env:
        app = env.app.with_options(session="s")
        first, behind = await app.start(cleans_up), await app.start(cleans_up)
        await behind.cancel()
        assert await behind.status() is Status.CANCELLED
        with pytest.raises(holdfast.RunCancelled):
            await env.result(behind)
        await env.settle()
        assert await first.status() is Status.WAITING
        assert steps(env) == ["note"]
