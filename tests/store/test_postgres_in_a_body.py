"""The store asked by the body of a run: what the driver does meanwhile is none of its doing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.clock import NEVER
from holdfast.engine.context import scope
from holdfast.store import upgrade
from holdfast.store.postgres_link import Link
from holdfast.types import Kind, Status

FAILURES = 3
SECONDS_MAX = 120


@holdfast.workflow
async def looks_around() -> int:
    (app,) = APPS
    return len(await app.list())


@holdfast.workflow
async def looks_and_gives_up() -> str:
    (app,) = APPS
    looking = asyncio.create_task(app.list())
    await CONNECTING.wait()
    looking.cancel()
    await asyncio.wait({looking})
    return "gave up" if looking.cancelled() else "looked"


@holdfast.workflow
async def looks_and_waits() -> int:
    (app,) = APPS
    return len(await app.queues()) + await holdfast.promise("answer", int)


APPS: list[holdfast.Holdfast] = []
CONNECTING = asyncio.Event()


async def test_waiting_for_another_connection_is_no_timer_of_the_run(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await upgrade(postgres_url)
    failed = 0
    once = Link._once

    async def fails_in_a_body(
        self: Link, work: Callable[..., Coroutine[Any, Any, object]], again: bool, seconds: float
    ) -> object:
        nonlocal failed
        if scope() is not None and failed < FAILURES:
            failed += 1
            raise ConnectionResetError("cut")
        return await once(self, work, again, seconds)

    monkeypatch.setattr(Link, "_once", fails_in_a_body)
    async with holdfast.Holdfast(postgres_url, workflows=[looks_around]) as app:
        APPS[:] = [app]
        run = await app.start(looks_around)
        assert await run.result() == 1
        assert failed == FAILURES
        assert Kind.TIMER not in [entry.kind for entry in await app.history(run.id)]


async def test_nor_is_giving_up_a_connection_that_is_being_made(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await upgrade(postgres_url)
    take = Link._take

    async def never(*args: object, **options: object) -> None:
        CONNECTING.set()
        await asyncio.Event().wait()

    async def takes_a_new_one_in_a_body(self: Link) -> Any:
        if scope() is None:
            return await take(self)
        monkeypatch.setattr("asyncpg.connect", never)
        return await self._servers.connect()

    async with holdfast.Holdfast(postgres_url, workflows=[looks_and_gives_up]) as app:
        APPS[:] = [app]
        CONNECTING.clear()
        monkeypatch.setattr(Link, "_take", takes_a_new_one_in_a_body)
        run = await app.start(looks_and_gives_up)
        assert await run.result() == "gave up"
        monkeypatch.undo()
        assert Kind.TIMER not in [entry.kind for entry in await app.history(run.id)]


async def test_nor_is_the_end_of_a_statement_that_is_new_to_a_connection(
    postgres_url: str,
) -> None:
    await upgrade(postgres_url)
    options = holdfast.WorkerOptions(memory_wait=timedelta(0))
    async with holdfast.Holdfast(
        postgres_url, workflows=[looks_and_waits], worker_options=options
    ) as app:
        APPS[:] = [app]
        run = await app.start(looks_and_waits)
        assert app.worker is not None
        await asyncio.wait_for(app.worker._left.wait(), SECONDS_MAX)  # it is out of memory
        assert await run.status() is Status.WAITING
        assert (await app.row(run.id)).ready_at in (None, NEVER), "only an answer wakes it"
        await app.resolve(run.id, "answer", 1)
        assert await run.result() == 2
