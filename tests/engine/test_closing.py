"""An app that is closed leaves nothing behind, also if that is cut short or its store is gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.engine import host, loop
from holdfast.errors import StoreUnavailable
from holdfast.store.sqlite import SQLiteStore

SECONDS_MAX = 60


class Scene:
    """Where a step is while its app closes."""

    begun: asyncio.Event


@holdfast.step
async def stays() -> None:
    Scene.begun.set()
    await asyncio.Event().wait()


@holdfast.workflow
async def staying() -> None:
    await stays()


async def opened(folder: Path) -> holdfast.Holdfast:
    Scene.begun = asyncio.Event()
    app = holdfast.Holdfast(f"sqlite:///{folder}/runs.db", workflows=[staying])
    await app.open()
    await app.start(staying)
    await asyncio.wait_for(Scene.begun.wait(), SECONDS_MAX)
    return app


def what_is_there() -> set[Any]:
    """Threads that keep leases, open workers and loops with hooks; of other tests, perhaps."""
    threads = {thread for thread in threading.enumerate() if thread.name == "holdfast-lease"}
    return threads | host._open | set(loop._installed)


@pytest.fixture
async def nothing_is_left() -> AsyncIterator[None]:
    before = what_is_there()
    yield
    assert what_is_there() <= before
    others = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
    if others:
        _, going_on = await asyncio.wait(others, timeout=SECONDS_MAX)
        assert not going_on


@pytest.mark.usefixtures("nothing_is_left")
async def test_a_close_that_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    app = await opened(tmp_path)
    closing = asyncio.create_task(app.close())
    await asyncio.sleep(0)  # by now it waits for the step
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize("verb", ["release", "deregister"])
async def test_a_close_without_its_store_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    async def out_of_reach(*args: Any) -> None:
        raise StoreUnavailable("there is no connection now")

    app = await opened(tmp_path)
    monkeypatch.setattr(SQLiteStore, verb, out_of_reach)
    with pytest.raises(StoreUnavailable):
        await app.close(grace=timedelta(0))


@pytest.mark.usefixtures("nothing_is_left")
async def test_nor_does_a_client_whose_store_is_gone_when_it_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def out_of_reach(*args: Any, **options: Any) -> None:
        asked.set()
        raise StoreUnavailable("there is no connection now")

    monkeypatch.setattr(SQLiteStore, "commit", out_of_reach)
    app = holdfast.Holdfast(f"sqlite:///{tmp_path}/runs.db", workflows=[staying], worker=False)
    await app.open()
    starting = asyncio.create_task(app.start(staying))
    await asyncio.wait_for(asked.wait(), SECONDS_MAX)
    starting.cancel()
    closing = asyncio.create_task(app.close())
    await asyncio.sleep(0)  # by now it waits for the commit
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
