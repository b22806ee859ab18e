"""Full disks and files that cannot be used: named errors, and runs that go on."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import StoreCorrupt, StoreError
from holdfast.store.sqlite import SQLiteStore
from holdfast.types import Status
from tests.crash.fleet import SECONDS_MAX

done: list[int] = []
LASTING = holdfast.WorkerOptions(lease=timedelta(minutes=10))
"""A lease that outlasts the test: no disk that stalls ends it."""


@holdfast.step
async def bulky(n: int) -> str:
    done.append(n)
    return "x" * 100_000


@holdfast.workflow
async def pile(count: int) -> int:
    return sum([len(await bulky(n)) for n in range(count)])


@holdfast.workflow
async def nap(hours: int) -> str:
    await holdfast.sleep(timedelta(hours=hours))
    return "rested"


class Said(logging.Handler):
    """Lets a test wait for something that is logged."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text, self.heard = text, asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self._loop.call_soon_threadsafe(self.heard.set)


@contextmanager
def listening(text: str) -> Iterator[Said]:
    handler = Said(text)
    logging.getLogger("holdfast").addHandler(handler)
    try:
        yield handler
    finally:
        logging.getLogger("holdfast").removeHandler(handler)


def limit_pages(app: holdfast.Holdfast, pages: int) -> None:
    assert isinstance(app.store, SQLiteStore)
    app.store._writer._db.execute(f"PRAGMA max_page_count = {pages}")


async def test_a_run_waits_while_the_disk_is_full_and_then_goes_on(tmp_path: Path) -> None:
    done.clear()
    app = holdfast.Holdfast(
        f"sqlite:///{tmp_path}/full.db", workflows=[pile], worker_options=LASTING
    )
    async with app:
        limit_pages(app, 200)
        with listening("does not take entries") as full:
            run = await app.start(pile, 20)
            async with asyncio.timeout(SECONDS_MAX):
                await full.heard.wait()
        assert len(done) < 20
        assert await run.status() is Status.RUNNING
        limit_pages(app, 1_000_000)
        async with asyncio.timeout(SECONDS_MAX):
            assert await run.result() == 20 * 100_000
        assert done == list(range(20)), "a step was executed again"
        seqs = [entry.seq for entry in await run.history()]
        assert seqs == list(range(1, len(seqs) + 1))


async def test_a_start_on_a_full_disk_returns_only_when_it_is_durable(tmp_path: Path) -> None:
    app = holdfast.Holdfast(f"sqlite:///{tmp_path}/full.db", workflows=[nap])
    async with app:
        limit_pages(app, 1)  # SQLite takes the present size for it, if that is larger
        with listening("does not take entries") as full:
            starting = asyncio.create_task(_start_many(app))
            async with asyncio.timeout(SECONDS_MAX):
                await full.heard.wait()
        assert not starting.done()
        limit_pages(app, 1_000_000)
        async with asyncio.timeout(SECONDS_MAX):
            for run in await starting:
                assert await run.status() is not Status.FAILED


async def _start_many(app: holdfast.Holdfast) -> list[holdfast.Run[str]]:
    return [await app.with_options(id=f"{n}-" + "x" * 400).start(nap, 1) for n in range(200)]


@contextmanager
def unprivileged() -> Iterator[None]:
    """As root every file can be written."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


async def test_a_read_only_file_is_a_named_error() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "read-only.db"
        async with holdfast.Holdfast(f"sqlite:///{path}", workflows=[nap]):
            pass
        os.chmod(folder, 0o755)
        os.chmod(path, 0o444)
        with unprivileged(), pytest.raises(StoreError, match=r"read-only\.db"):
            async with holdfast.Holdfast(f"sqlite:///{path}", workflows=[nap]) as app:
                await app.start(nap, 1)


async def test_a_corrupt_file_is_a_named_error_and_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "bad.db"
    path.write_bytes(b"this is no database " * 500)
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match=r"bad\.db"):
        await holdfast.Holdfast(f"sqlite:///{path}", workflows=[nap]).open()
    assert path.read_bytes() == before
