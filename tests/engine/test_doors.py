"""Other doors to the app: a mere client, code without an event loop, runs without a journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Status
from holdfast.engine import loop
from holdfast.errors import StoreUnavailable
from holdfast.store.base import Leasekeeper
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing import Environment
from holdfast.types import WorkerRow

DAY = timedelta(days=1)


@holdfast.step
async def work(number: int) -> int:
    return number


@holdfast.workflow
async def works(number: int) -> int:
    return await work(number)


@holdfast.workflow
async def sleeps(days: int) -> None:
    await holdfast.sleep(days * DAY)


async def test_a_mere_client_starts_runs_that_a_worker_elsewhere_executes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    client = Holdfast(url, workflows=[works], worker=False)
    async with client:
        run = await client.start(works, 5)
        assert await run.status() is Status.PENDING
        assert "no worker is alive" in await run.why()
        async with Holdfast(url, workflows=[works]):
            assert await asyncio.wait_for(run.result(), 120) == 5


def test_the_sync_door_opens_the_same_app_to_code_without_a_loop(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/runs.db", workflows=[works, sleeps])
    with app.sync() as door:
        run = door.with_options(id="one").start(works, 6)
        assert run.result() == 6
        assert run.status() is Status.COMPLETED
        assert [row.id for row in door.list()] == ["one"]
        with pytest.raises(holdfast.UnknownRun):
            door.get("nobody").result()
        asleep = door.start(sleeps, 1)
        asleep.cancel()
        with pytest.raises(holdfast.RunCancelled):
            asleep.result()
    with app.sync() as door:  # and once more
        assert door.get("one").result() == 6


async def test_a_run_without_durability_gives_the_same_result_and_leaves_no_journal() -> None:
    async with Environment([works]) as env:
        run = await env.app.with_options(durability="none").start(works, 7)
        assert await run.result() == 7
        assert await env.app.list() == []


async def test_a_call_on_another_event_loop_is_refused_by_name_and_changes_nothing() -> None:
    async with Environment([works]) as env:
        run = await env.start(works, 8)
        calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
            lambda: env.app.start(works, 9),
            lambda: env.app.list(),
            lambda: env.app.with_options(id="x").start(works, 9),
            lambda: run.result(),
            lambda: run.cancel(),
            lambda: env.app.close(),
        ]
        for call in calls:
            with pytest.raises(holdfast.WrongEventLoop, match="run_coroutine_threadsafe"):
                await asyncio.to_thread(_run_elsewhere, call)
        loop = asyncio.get_running_loop()

        def there() -> int:
            start = asyncio.run_coroutine_threadsafe(env.app.start(works, 9), loop)
            return asyncio.run_coroutine_threadsafe(start.result(120).result(), loop).result(120)

        assert await asyncio.to_thread(there) == 9
        assert await run.result() == 8
        assert len(await env.app.list()) == 2


def _run_elsewhere(call: Callable[[], Coroutine[Any, Any, object]]) -> None:
    asyncio.run(call())


# Python 3.13 tells that nobody closed its connections.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_app_whose_event_loop_is_gone_says_so() -> None:
    app = Holdfast("sqlite://:memory:", workflows=[works], worker=False)

    async def forgets_to_close() -> None:
        await app.open()

    asyncio.run(forgets_to_close())
    with pytest.raises(holdfast.WrongEventLoop, match="is closed"):
        asyncio.run(app.list())


async def test_an_app_that_could_not_open_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(self: SQLiteStore, worker: WorkerRow) -> Leasekeeper:
        raise StoreUnavailable("all connections are taken")

    before = asyncio.all_tasks()
    with monkeypatch.context() as patch:
        patch.setattr(SQLiteStore, "register", refused)
        with pytest.raises(StoreUnavailable):
            await Holdfast("sqlite://:memory:", workflows=[works]).open()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert asyncio.get_running_loop() not in loop._installed
