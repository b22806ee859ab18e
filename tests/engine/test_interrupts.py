"""Cancelled runs and passed deadlines: cleaning up is as durable as everything else."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Status
from holdfast.testing import Environment
from holdfast.testing.crash_store import CrashStore
from holdfast.types import Kind

DAY = timedelta(days=1)
POSITIONS_MAX = 20


@holdfast.step
async def note(text: str) -> str:
    return text


@holdfast.step
def write(text: str) -> str:
    return text


@holdfast.workflow
async def cleans_up() -> None:
    try:
        await note("begin")
        await holdfast.sleep(DAY)
    except asyncio.CancelledError:
        await note("one")
        await asyncio.gather(note("two"), note("three"))
        await holdfast.sleep(DAY)
        await note("four")
        raise


@holdfast.workflow
def cleans_up_in_a_thread() -> None:
    try:
        write("begin")
        holdfast.sleep(DAY)
    except asyncio.CancelledError:
        write("one")
        holdfast.sleep(DAY)
        write("two")
        raise


async def recovered(workflow: Any, entries: int, at_once: bool, deadline: Any) -> Status | None:
    """How a run ends that is interrupted while it sleeps, and crashes so many entries later."""
    store = CrashStore("r")
    env = Environment([workflow], store=store)
    await env.app.open()
    try:
        run = await env.app.with_options(id="r", deadline=deadline).start(workflow)
        await env.settle()
        store.arm(store.entries + entries, at_once=at_once)
        if deadline is None:
            await run.cancel()
        life = asyncio.create_task(env.ended("r"))
        death = asyncio.create_task(store.crashed.wait())
        await asyncio.wait([life, death], return_when=asyncio.FIRST_COMPLETED)
        crashed = death.done()
        for task in (life, death):
            task.cancel()
        await asyncio.wait([life, death])
        if not crashed:
            return None
        completed = {call.key for call in store.completed}
        store.arm()
        env.started.clear()
        await env.crash()
        row = await env.ended("r")
        assert not completed & set(env.started)
        steps = [e.key for e in await run.history() if e.kind is Kind.STEP]
        assert len(steps) == len(set(steps)) == (5 if workflow is cleans_up else 3)
        return row.status
    finally:
        await env.die()
        await store.discard()


@pytest.mark.parametrize("deadline", [None, DAY / 2], ids=["cancelled", "deadline"])
@pytest.mark.parametrize("workflow", [cleans_up, cleans_up_in_a_thread], ids=["async", "def"])
async def test_an_interrupted_run_survives_a_crash_anywhere(workflow: Any, deadline: Any) -> None:
    expected = Status.CANCELLED if deadline is None else Status.FAILED
    crashes = 0
    for entries in range(1, POSITIONS_MAX):
        for at_once in (True, False):
            ended = await recovered(workflow, entries, at_once, deadline)
            assert ended in (expected, None)
            crashes += ended is not None
    assert crashes > 8


async def test_a_def_workflow_hears_of_its_cancellation_at_its_next_durable_call() -> None:
    begun, go_on = threading.Event(), threading.Event()

    @holdfast.workflow
    def computes() -> str:
        begun.set()
        go_on.wait()
        return write("must not begin")

    async with Environment([computes]) as env:
        run = await env.start(computes)
        await asyncio.to_thread(begun.wait)
        await run.cancel()
        (execution,) = env.worker.runs.values()
        while not execution.inbox.seen:  # noqa: ASYNC110
            await asyncio.sleep(0)
        go_on.set()
        await env.settle()
        assert await run.status() is Status.CANCELLED
    assert env.started == []


async def test_a_cancelled_run_that_is_run_again_forgets_the_cancellation() -> None:
    async with Environment([cleans_up]) as env:
        run = await env.start(cleans_up)
        await env.settle()
        await run.cancel()
        with pytest.raises(holdfast.RunCancelled):
            await env.result(run)
        env.started.clear()
        await env.result(await run.rerun())
        assert await run.status() is Status.COMPLETED
    assert env.started == []  # its step is on record, and its sleep is over
