"""Frameworks wait for tasks of their own by events and queues: `waits_within` says which do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Status
from holdfast.engine import awaited
from holdfast.testing import Environment

AT_ONCE = holdfast.WorkerOptions(memory_wait=timedelta(0), unsure_wait=timedelta(0))
Joins = Callable[[Awaitable[Any]], Awaitable[Any]]


async def joins_by_an_event(work: Awaitable[str]) -> str:
    done = asyncio.Event()

    async def worked() -> str:
        try:
            return await work
        finally:
            done.set()

    task = asyncio.create_task(worked())
    await done.wait()
    return await task


async def yields_what_a_queue_gives(work: Awaitable[str]) -> AsyncIterator[str]:
    found: asyncio.Queue[str] = asyncio.Queue()

    async def worked() -> None:
        found.put_nowait(await work)

    task = asyncio.create_task(worked())
    yield await found.get()
    await task


async def joins_by_a_generator(work: Awaitable[str]) -> str:
    return await anext(yields_what_a_queue_gives(work))


async def joins_beside_a_signal(work: Awaitable[str]) -> str:
    task = asyncio.ensure_future(work)
    signal = asyncio.create_task(asyncio.Event().wait())
    try:
        await asyncio.wait({task, signal}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        signal.cancel()
    return await task


async def asks() -> str:
    return await holdfast.promise("answer", str)


def as_workflow(joins: Joins, work: Callable[[], Awaitable[Any]]) -> Any:
    @holdfast.step(name="asks")
    async def step() -> Any:
        return await joins(work())

    @holdfast.workflow(name="works")
    async def body() -> Any:
        return await step()

    return body


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited, "_within", set())


CASES: list[tuple[Joins, Any]] = [
    (joins_by_an_event, joins_by_an_event),
    (joins_by_a_generator, yields_what_a_queue_gives),
    (joins_beside_a_signal, joins_beside_a_signal),
]


@pytest.mark.parametrize(("joins", "function"), CASES)
async def test_a_step_that_waits_so_leaves_memory_if_that_is_said(
    joins: Joins, function: Any
) -> None:
    holdfast.waits_within(function)
    workflow = as_workflow(joins, asks)
    async with Environment([workflow], worker_options=AT_ONCE) as env:
        run = await env.start(workflow)
        await env.settle()
        assert (env.worker.runs, await run.status()) == ({}, Status.WAITING)
        await run.resolve("answer", "yes")
        assert await env.result(run) == "yes"


async def until_asked(env: Environment, run: holdfast.Run[Any]) -> None:
    async with asyncio.timeout(120):
        while not await env.app.promises(run.id):  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)


@pytest.mark.parametrize(("joins", "function"), CASES)
async def test_a_step_that_waits_so_stays_in_memory_if_nobody_said_so(
    joins: Joins, function: Any
) -> None:
    workflow = as_workflow(joins, asks)
    async with Environment([workflow], worker_options=AT_ONCE) as env:
        run = await env.start(workflow)
        await until_asked(env, run)
        assert len(env.worker.runs) == 1
        await run.resolve("answer", "yes")
        assert await env.result(run) == "yes"


@pytest.mark.parametrize(("joins", "function"), CASES)
async def test_a_step_that_waits_so_stays_in_memory_while_another_task_reads(
    joins: Joins, function: Any
) -> None:
    holdfast.waits_within(function)
    plain: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def reads() -> None:
        await plain

    async def asks_and_reads() -> str:
        return (await asyncio.gather(asks(), reads()))[0]

    workflow = as_workflow(joins, asks_and_reads)
    async with Environment([workflow], worker_options=AT_ONCE) as env:
        run = await env.start(workflow)
        await until_asked(env, run)
        assert len(env.worker.runs) == 1
        plain.set_result(None)
        await env.settle()
        assert env.worker.runs == {}
        await run.resolve("answer", "yes")
        assert await env.result(run) == "yes"


async def test_what_is_said_of_a_function_does_not_hold_for_the_code_it_calls() -> None:
    plain = asyncio.Event()

    async def reads() -> None:
        await plain.wait()  # which a socket might set

    async def calls(work: Awaitable[str]) -> str:
        found = asyncio.ensure_future(work)
        await reads()
        return await found

    holdfast.waits_within(calls)
    workflow = as_workflow(calls, asks)
    async with Environment([workflow], worker_options=AT_ONCE) as env:
        run = await env.start(workflow)
        await until_asked(env, run)
        assert len(env.worker.runs) == 1
        plain.set()
        await run.resolve("answer", "yes")
        assert await env.result(run) == "yes"
