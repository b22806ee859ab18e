"""Backups of a PostgreSQL store: one snapshot, a file like any other backup, bounded memory."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import RunFilter, Status, StoreCorrupt, StoreMoved, StoreUnavailable, store
from holdfast.store import copying, queries
from holdfast.store.copying import Progress
from holdfast.store.postgres_copying import PostgresEnd
from holdfast.store.sqlite_copying import SQLiteEnd
from holdfast.store.sqlite_open import APPLICATION_ID
from holdfast.testing.conformance.given import (
    NOW,
    append,
    start,
    started_and_claimed,
    step,
    worker,
)
from holdfast.testing.postgres import PostgresServer
from tests.store.moving import Urls, dump, execute, fill, new_urls, opened, state_of


@pytest.fixture
def urls(tmp_path: Path, postgres: PostgresServer) -> Urls:
    return new_urls(tmp_path, postgres)


async def only_rows(url: str) -> dict[str, list[Any]]:
    return {name: rows for name, rows in (await dump(url)).items() if name != "counters"}


async def test_a_backup_is_restored_into_either_kind_of_store(urls: Urls, tmp_path: Path) -> None:
    source, other, file = urls("postgres"), urls("postgres"), urls("sqlite")
    await fill(source)
    await execute(
        source, "UPDATE runs SET owner = NULL, status = 'pending', ready_at = updated_at;"
    )
    copy = str(tmp_path / "copy.db")
    async with opened(source) as used:
        await used.backup(copy)
        await start(used, "later")
    assert sorted(os.listdir(tmp_path)) == ["copy.db"], "one file, and nothing else"
    await store.restore(other, copy)
    await store.restore(file, copy)
    before = await dump(f"sqlite:///{copy}")
    assert await dump(other) == await dump(file) == before
    assert len(before["runs"]) == 10
    again = str(tmp_path / "again.db")
    async with opened(file) as used:
        await used.backup(again)
    third = urls("postgres")
    await store.restore(third, again)
    assert await dump(third) == before


async def test_a_backup_is_one_snapshot_while_others_go_on_writing(
    urls: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = urls("postgres")
    async with opened(source) as used:
        await worker(used)
        run = await started_and_claimed(used, "running")
        await used.commit([append(run, step(2))])
        await start(used, "pending")
        real = SQLiteEnd.write

        async def write(self: SQLiteEnd, *args: Any) -> None:
            """Between two batches, somebody writes to tables before and after it."""
            await start(used, f"new {os.urandom(4).hex()}")
            written.append(await used.commit([append(run, step(3 + len(written)))]))
            await real(self, *args)

        written: list[Any] = []
        monkeypatch.setattr(SQLiteEnd, "write", write)
        monkeypatch.setattr(copying, "BATCH_ROWS", 1)
        await used.backup(str(tmp_path / "copy.db"))
        assert len(written) > 3, "they did go on"
    monkeypatch.undo()
    async with opened(f"sqlite:///{tmp_path}/copy.db") as copy:
        rows = {row.id: row for row in await copy.find(RunFilter())}
        assert set(rows) == {"running", "pending"}
        assert [entry.seq for entry in await copy.journal(rows["running"].key)] == [1, 2]
        # Its worker is not in the copy: it is handed back, and no strike is counted.
        assert rows["running"].owner is None and rows["running"].status is Status.PENDING
        assert rows["running"].ready_at is not None and rows["running"].strikes == 0
        assert await copy.check() == []


async def test_a_large_store_is_copied_a_few_rows_at_a_time(
    urls: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = urls("postgres")
    await store.upgrade(source)
    await execute(
        source,
        "INSERT INTO runs (id, workflow, status, incarnation, digest, input, created_at, updated_at"
        ") SELECT 'run ' || n, 'w', 'waiting', 'i', '', '', 1, 1 FROM generate_series(1, 50) n;"
        "INSERT INTO journal (run, seq, kind, key, at, epoch, position, attempt, failed, output) "
        "SELECT r, n, 'step', '/s#' || n, n, 1, n, 1, false, {bytes} "
        "FROM generate_series(1, 50) r, generate_series(1, 200) n;",
    )
    held = Held()
    held.watch(PostgresEnd, SQLiteEnd, monkeypatch)
    async with opened(source) as used:
        await used.backup(str(tmp_path / "copy.db"))
    assert held.total > 10_000
    target = urls("postgres")
    held.watch(SQLiteEnd, PostgresEnd, monkeypatch)
    await store.restore(target, str(tmp_path / "copy.db"))
    assert held.total > 20_000
    assert held.most <= copying.BATCH_ROWS + copying.READ_ROWS
    with closing(sqlite3.connect(tmp_path / "copy.db")) as db:
        assert db.execute("SELECT count(*), sum(seq) FROM journal").fetchone() == (
            10_000,
            50 * 20_100,
        )


class Held:
    """How many rows were read and not written yet, at most."""

    def __init__(self) -> None:
        self.now = self.most = self.total = 0

    def watch(self, source: Any, target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        copied = copying.copy

        async def copy(here: Any, there: Any, report: Any) -> None:
            """Only while rows are copied: to compare them, none is held."""
            read, write = here.read, there.write

            async def reading(*args: Any) -> Any:
                async for chunk in read(*args):
                    self.now += len(chunk)
                    self.total += len(chunk)
                    self.most = max(self.most, self.now)
                    yield chunk

            async def writing(table: Any, columns: Any, rows: Any) -> None:
                await write(table, columns, rows)
                self.now -= len(rows)

            assert isinstance(here, source) and isinstance(there, target)
            here.read, there.write = reading, writing
            await copied(here, there, report)
            here.read, there.write = read, write

        monkeypatch.setattr(copying, "copy", copy)


async def test_a_batch_is_bounded_by_bytes_too(urls: Urls, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = urls("sqlite"), urls("sqlite")
    async with opened(source) as made:
        await worker(made, lease_seconds=0)
        for n in range(10):
            run = await started_and_claimed(made, f"run {n}")
            await made.commit([append(run, step(2, output=b'"' + b"x" * 1000 + b'"'))])
    monkeypatch.setattr(copying, "BATCH_BYTES", 2500)
    seen: list[Progress] = []
    await store.move(source, target, seen.append)
    batches = [progress.done for progress in seen if progress.what == "journal"]
    assert len(batches) > 4


def test_large_rows_are_read_fewer_at_a_time():
    large, small = (b"x" * copying.BATCH_BYTES, "y"), (b"x", "y")
    assert copying.rows_to_read(10, [large] * 10) == 1
    assert copying.rows_to_read(1, [small]) == 2
    assert copying.rows_to_read(80, [small] * 80) == copying.READ_ROWS


# What is not restored, and over what nothing is


async def test_a_store_that_holds_data_is_restored_over_by_force_only(
    urls: Urls, tmp_path: Path
) -> None:
    source, target = urls("postgres"), urls("postgres")
    await fill(source)
    copy = str(tmp_path / "copy.db")
    async with opened(source) as used:
        await used.backup(copy)
        with pytest.raises(StoreUnavailable, match="exists"):
            await used.backup(copy)
    async with opened(target) as used:
        await start(used, "mine")
        await worker(used, "busy")
        with pytest.raises(StoreUnavailable, match=r"busy \(pid"):
            await store.restore(target, copy, force=True)
        await used.deregister("busy")
        with pytest.raises(StoreUnavailable, match="--force"):
            await store.restore(target, copy)
        assert await used.get("mine") is not None
        await store.restore(target, copy, force=True)
        assert await used.get("mine") is None
    assert await only_rows(target) == await only_rows(f"sqlite:///{copy}")


async def test_a_restore_that_is_interrupted_changes_nothing(
    urls: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = urls("sqlite"), urls("postgres")
    await fill(source)
    copy = str(tmp_path / "copy.db")
    async with opened(source) as used:
        await used.backup(copy)
    async with opened(target) as used:
        await start(used, "mine")
        real = PostgresEnd.write

        async def write(self: PostgresEnd, table: Any, *args: Any) -> None:
            await real(self, table, *args)
            if table.name == "journal":
                raise asyncio.CancelledError

        monkeypatch.setattr(PostgresEnd, "write", write)
        with pytest.raises(asyncio.CancelledError):
            await store.restore(target, copy, force=True)
        assert await used.get("mine") is not None
        assert await used.get("pending") is None
        await start(used, "mine, too")


async def test_what_is_no_whole_backup_is_not_restored(urls: Urls, tmp_path: Path) -> None:
    target = urls("postgres")
    junk = tmp_path / "junk.db"
    junk.write_bytes(b"junk" * 1000)
    with pytest.raises(StoreCorrupt):
        await store.restore(target, str(junk))
    with pytest.raises(StoreUnavailable, match="no file"):
        await store.restore(target, str(tmp_path / "absent.db"))
    moved, elsewhere = urls("sqlite"), urls("sqlite")
    await fill(moved)
    await store.move(moved, elsewhere)
    async with opened(moved) as used:
        await used.backup(str(tmp_path / "old.db"))
    with pytest.raises(StoreMoved, match="not restored"):
        await store.restore(target, str(tmp_path / "old.db"))


async def test_a_backup_of_an_older_version_is_restored_and_stays_as_it_was(
    urls: Urls, tmp_path: Path
) -> None:
    old = tmp_path / "old.db"
    with closing(sqlite3.connect(old)) as db:
        for statement in queries.statements(queries.read("sqlite", "migrations", "0001_first.sql")):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("PRAGMA user_version = 1")
        db.execute(
            "INSERT INTO runs (id, workflow, status, created_at, updated_at, incarnation, digest, "
            "input, ready_at) VALUES ('old', 'research', 'pending', 1, 1, 'i', x'', x'', 1)"
        )
        db.commit()
    before = old.read_bytes()
    target = urls("postgres")
    await store.restore(target, str(old))
    assert old.read_bytes() == before
    async with opened(target) as restored:
        await worker(restored)
        assert [c.row.id for c in await restored.claim("w1", ["research"], NOW, 10)] == ["old"]


async def test_a_store_on_the_move_is_neither_backed_up_nor_restored_over(
    urls: Urls, tmp_path: Path
) -> None:
    source, target = urls("sqlite"), urls("postgres")
    await fill(source)
    async with opened(source) as used:
        await used.backup(str(tmp_path / "copy.db"))

    def report(progress: Progress) -> None:
        if progress.what == "inbox":
            raise InterruptedError

    with pytest.raises(InterruptedError):
        await store.move(source, target, report)
    assert await state_of(target) == "arriving"
    async with opened(target) as used:
        with pytest.raises(StoreMoved, match="not done"):
            await used.backup(str(tmp_path / "half.db"))
    with pytest.raises(StoreMoved, match="not done"):
        await store.restore(target, str(tmp_path / "copy.db"), force=True)
    assert await store.move(source, target)
