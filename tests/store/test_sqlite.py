"""What only SQLite does: files and their faults, where work runs, plans, copies."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("holdfast.testing")

from holdfast.errors import (  # noqa: E402
    NotOpen,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    Unsupported,
)
from holdfast.store import host, open_store, sqlite_lanes  # noqa: E402
from holdfast.store.base import Appended, Reservation, Start, Started  # noqa: E402
from holdfast.store.sqlite import SQLiteStore  # noqa: E402
from holdfast.store.sqlite_rows import SQL  # noqa: E402
from holdfast.store.sqlite_upkeep import restore  # noqa: E402
from holdfast.testing.conformance.given import (  # noqa: E402
    NOW,
    append,
    do,
    end,
    new_run,
    row,
    start,
    started_and_claimed,
    step,
    worker,
)
from holdfast.types import RunFilter  # noqa: E402

CHILDREN = Path(__file__).parent / "children.py"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(str(path))
    await store.open()
    yield store
    await store.close()


async def fails_to_open(path: Path, error: type[StoreError]) -> StoreError:
    """Opening fails with this error, and leaves the directory as it was."""

    def contents() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in path.parent.iterdir()}

    before = contents()
    with pytest.raises(error) as caught:
        await SQLiteStore(str(path)).open()
    assert contents() == before
    return caught.value


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(random.Random(0).randbytes(path.stat().st_size - 8192))


def pragma(store: SQLiteStore, name: str) -> object:
    return store._writer._db.execute(f"PRAGMA {name}").fetchone()[0]


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "path"),
        [
            ("sqlite:///a/b.db", os.path.abspath("a/b.db")),
            ("sqlite:////a/b.db", "/a/b.db"),
            ("a b.db", os.path.abspath("a b.db")),
            ("/a/b.db", "/a/b.db"),
            ("sqlite://:memory:", ":memory:"),
            ("sqlite:///:memory:", ":memory:"),
            (":memory:", ":memory:"),
        ],
    )
    def test_a_url_or_a_path_names_the_file(self, url: str, path: str) -> None:
        store = open_store(url)
        assert isinstance(store, SQLiteStore)
        assert (store.url, store.path) == (url, path)

    @pytest.mark.parametrize("url", ["sqlite://", "mysql://host/db", "http://x", "", "file:x?y"])
    def test_anything_else_is_a_clear_error(self, url: str) -> None:
        with pytest.raises(StoreError, match="sqlite:///"):
            open_store(url)

    async def test_nothing_is_created_before_the_store_is_opened(self, path: Path) -> None:
        store = SQLiteStore(str(path))
        with pytest.raises(NotOpen):
            await store.get("run")
        assert list(path.parent.iterdir()) == []


class TestFiles:
    async def test_commits_are_made_to_survive_the_loss_of_power(self, store: SQLiteStore) -> None:
        assert pragma(store, "journal_mode") == "wal"
        assert pragma(store, "synchronous") == 2

    async def test_a_store_is_reopened_with_all_it_held(self, path: Path) -> None:
        for n in range(3):
            store = SQLiteStore(str(path))
            await store.open()
            await start(store, f"run-{n}")
            assert len(await store.find(RunFilter())) == n + 1
            await store.close()

    async def test_a_missing_directory_is_named(self, tmp_path: Path) -> None:
        store = SQLiteStore(str(tmp_path / "nowhere" / "runs.db"))
        with pytest.raises(StoreUnavailable, match="nowhere does not exist"):
            await store.open()

    async def test_a_file_that_is_no_database_is_left_alone(self, path: Path) -> None:
        write(path, b"my precious notes, long enough to have a header's length" * 50)
        error = await fails_to_open(path, StoreCorrupt)
        assert "not a SQLite database" in str(error)

    async def test_a_database_of_another_program_is_left_alone(self, path: Path) -> None:
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE notes (text)")
        db.close()
        error = await fails_to_open(path, StoreCorrupt)
        assert "another program" in str(error)

    async def test_so_is_one_that_is_marked_as_anothers(self, path: Path) -> None:
        db = sqlite3.connect(path)
        db.execute("PRAGMA application_id = 4711")
        db.close()
        await fails_to_open(path, StoreCorrupt)

    async def test_a_newer_schema_is_left_alone(self, path: Path) -> None:
        store = SQLiteStore(str(path))
        await store.open()
        await store.close()
        db = sqlite3.connect(path)
        db.execute("PRAGMA user_version = 999")
        db.execute("PRAGMA journal_mode = DELETE")
        db.close()
        error = await fails_to_open(path, SchemaMismatch)
        assert "999" in str(error)

    async def test_a_damaged_file_is_reported_as_such(self, path: Path) -> None:
        store = SQLiteStore(str(path))
        await store.open()
        await store.commit([Start(new_run(f"run-{n}", input=b"x" * 500)) for n in range(200)])
        await store.close()
        damage(path)
        store = SQLiteStore(str(path))
        with pytest.raises(StoreCorrupt, match="restore"):
            await store.open()
            await store.find(RunFilter(limit=1000))
        await store.close()

    async def test_a_healthy_file_passes_the_check(self, store: SQLiteStore) -> None:
        await start(store, "run")
        assert await store.check() == []

    @pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become somebody else")
    def test_a_read_only_file_is_reported_as_such(self) -> None:
        with tempfile.TemporaryDirectory() as folder:  # others cannot enter the one for tests
            path = Path(folder) / "runs.db"
            asyncio.run(_created(path))
            path.chmod(0o444)
            os.chmod(folder, 0o755)
            command = [sys.executable, str(CHILDREN), "open_read_only", str(path)]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert said.startswith("StoreUnavailable")
        assert "right to write" in said or "may this process write there" in said

    async def test_a_network_file_system_is_refused(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mounts = f"/dev/vda / ext4 rw 0 0\nserver:/export {path.parent} nfs4 rw 0 0\n"
        monkeypatch.setattr(host, "_mounts", lambda: mounts)
        error = await fails_to_open(path, Unsupported)
        assert "nfs4" in str(error)

    def test_the_deepest_and_last_mount_counts(self) -> None:
        mounts = (
            "/dev/a / ext4 rw 0 0\nx /data nfs rw 0 0\n/dev/b /data/local\\040disk xfs rw 0 0\n"
            "/dev/c /twice nfs rw 0 0\n/dev/d /twice ext4 rw 0 0\n"
        )
        assert host.file_system_of("/home/runs.db", mounts) == "ext4"
        assert host.file_system_of("/data/runs.db", mounts) == "nfs"
        assert host.file_system_of("/database/runs.db", mounts) == "ext4"
        assert host.file_system_of("/data/local disk/runs.db", mounts) == "xfs"
        assert host.file_system_of("/twice/runs.db", mounts) == "ext4"
        assert host.file_system_of("/runs.db", "") == ""


async def _created(path: Path) -> None:
    store = SQLiteStore(str(path))
    await store.open()
    await store.close()


class TestFullDisk:
    async def test_a_full_disk_is_named_and_nothing_is_half_written(
        self, store: SQLiteStore
    ) -> None:
        await worker(store)
        runs = [await started_and_claimed(store, f"run-{n}") for n in range(2)]
        pages = pragma(store, "page_count")
        store._writer._db.execute(f"PRAGMA max_page_count = {pages}")
        large = [append(run, step(2), step(3, output=b"x" * 100_000)) for run in runs]
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="disk is full"):
                await store.commit(large)
        for run in runs:
            assert len(await store.journal(run.key)) == 1
        store._writer._db.execute("PRAGMA max_page_count = 1000000")
        assert await store.commit(large) == [Appended(), Appended()]

    @pytest.fixture
    def small_disk(self, tmp_path: Path) -> Iterator[Path]:
        disk = tmp_path / "disk"
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("cannot mount a small disk here")
        yield disk
        subprocess.run(["umount", "-l", str(disk)], check=True)

    async def test_the_store_goes_on_when_there_is_space_again(self, small_disk: Path) -> None:
        store = SQLiteStore(str(small_disk / "runs.db"))
        await store.open()
        await worker(store)
        run = await started_and_claimed(store, "run")
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"x" * (shutil.disk_usage(small_disk).free - 4096))
        batch = append(run, step(2), step(3, output=b"x" * 100_000))
        with pytest.raises(StoreUnavailable, match="space"):
            await do(store, batch)
        assert len(await store.journal(run.key)) == 1
        ballast.unlink()
        assert await do(store, batch) == Appended()
        await store.close()
        await store.open()
        assert len(await store.journal(run.key)) == 3
        assert await store.check() == []
        await store.close()


class TestWhereWorkRuns:
    async def test_a_cheap_commit_needs_no_thread(
        self, store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_lanes, "INLINE_SECONDS_MAX", 1e6)  # whatever this disk is like
        await worker(store)
        run = await started_and_claimed(store, "run")
        await do(store, append(run, step(2)))
        assert store._writer._executor is None
        assert store._reader._executor is None

    async def test_a_slow_disk_moves_commits_to_a_thread_and_back(
        self, store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Commits on a thread are measured, too, so that a disk may get fast again.
        monkeypatch.setattr(sqlite_lanes, "INLINE_SECONDS_MAX", 10.0)
        store._writer.average_seconds = 12.0
        await start(store, "on the thread")
        assert store._writer._executor is not None
        for n in range(5):
            await start(store, f"run-{n}")
        assert store._writer.average_seconds < 10.0

    async def test_a_locked_file_does_not_block_the_event_loop(
        self, store: SQLiteStore, path: Path
    ) -> None:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        starting = asyncio.create_task(start(store, "run"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert await store.get("run") is None
        assert not starting.done()
        other.execute("COMMIT")
        other.close()
        await starting
        assert await row(store, "run")

    async def test_whoever_came_first_commits_first(self, store: SQLiteStore, path: Path) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        appends = [asyncio.create_task(do(store, append(run, step(n)))) for n in range(2, 12)]
        await asyncio.sleep(0)
        other.execute("COMMIT")
        other.close()
        assert await asyncio.gather(*appends) == [Appended()] * 10

    async def test_a_file_that_stays_locked_is_an_error_in_the_end(
        self, store: SQLiteStore, path: Path
    ) -> None:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked for writing"):
            store._writer.run_now(lambda db: None, wait_seconds=0.01)
        other.close()
        await start(store, "run")

    async def test_a_commit_whose_caller_is_gone_is_done_or_not_begun(
        self, store: SQLiteStore, path: Path
    ) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        first = asyncio.create_task(do(store, append(run, step(2), step(3))))
        second = asyncio.create_task(do(store, append(run, step(4), step(5))))
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        await asyncio.wait([first, second])
        other.execute("COMMIT")
        other.close()
        # Behind the two in the queue: when this is done, so is whatever they did.
        await start(store, "other")
        assert len(await store.journal(run.key)) in (1, 3)

    async def test_a_read_waits_while_the_file_is_repaired(self, store: SQLiteStore) -> None:
        await start(store, "run")
        tries = 0

        def work(db: sqlite_lanes.Db) -> object:
            nonlocal tries
            tries += 1
            if tries < 4:
                error = sqlite3.OperationalError("database is locked")
                error.sqlite_errorcode = sqlite3.SQLITE_BUSY_RECOVERY
                raise error
            return db.execute("SELECT id FROM runs").fetchone()

        assert await store._reader.run(work) == ("run",)
        assert tries == 4

    async def test_an_error_in_a_transaction_leaves_nothing_behind(
        self, store: SQLiteStore
    ) -> None:
        def work(db: sqlite_lanes.Db) -> None:
            db.execute("INSERT INTO inbox (run, kind, name, at) VALUES (1, 'message', '', 1)")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await store._writer.run(work)
        assert not store._writer._db.in_transaction
        assert await store.mail([(1, 0)]) == []


class TestWaitingIsFree:
    async def test_an_append_is_checked_by_two_look_ups(self, store: SQLiteStore) -> None:
        plan = store._reader._db.execute(f"EXPLAIN QUERY PLAN {SQL['tail']}", (1,)).fetchall()
        lines = [str(found[3]) for found in plan]
        assert "SEARCH r USING INTEGER PRIMARY KEY (rowid=?)" in lines
        assert any("USING COVERING INDEX" in line and "(run=?)" in line for line in lines)

    async def test_a_worker_is_reaped_without_looking_at_other_runs(
        self, store: SQLiteStore
    ) -> None:
        plan = store._reader._db.execute(f"EXPLAIN QUERY PLAN {SQL['owned']}", ("w",)).fetchall()
        assert not any("SCAN" in str(found[3]) for found in plan), plan


class TestLeases:
    async def test_the_wall_clock_cannot_end_a_lease(
        self, store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await worker(store, "w1", lease_seconds=60)
        monkeypatch.setattr("time.time", lambda: 4e9)
        monkeypatch.setattr("time.time_ns", lambda: 4 * 10**18)
        assert await store.reap("w1", 4 * 10**15, dead=False) is None

    async def test_a_worker_of_an_earlier_boot_has_no_lease(self, store: SQLiteStore) -> None:
        await worker(store, "w1", lease_seconds=60)
        await store._writer.run(lambda db: db.execute("UPDATE workers SET boot = 'earlier'"))
        (found,) = await store.workers()
        assert found.lease_left_seconds == 0
        assert await store.reap("w1", NOW, dead=False) is not None

    async def test_a_renewal_waits_for_no_disk(self, store: SQLiteStore) -> None:
        keeper = await worker(store)
        db = store._keepers["w1"]._db
        assert db is not store._writer._db
        assert db.execute("PRAGMA synchronous").fetchone()[0] == 1
        assert await asyncio.to_thread(keeper.renew)


class TestCopies:
    async def test_a_backup_taken_while_others_write_is_whole(
        self, store: SQLiteStore, tmp_path: Path
    ) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        copy = tmp_path / "copy.db"
        backing_up = asyncio.create_task(store.backup(str(copy)))
        seq = 1
        while not backing_up.done():
            seq += 1
            await do(store, append(run, step(seq, output=b"x" * 1000)))
            await asyncio.sleep(0)
        await backing_up
        assert [name for name in os.listdir(tmp_path) if "copy" in name] == ["copy.db"]
        other = SQLiteStore(str(copy))
        await other.open()
        places = [entry.seq for entry in await other.journal(run.key)]
        assert places == list(range(1, len(places) + 1))
        assert len(places) <= seq
        await other.close()

    async def test_a_memory_store_can_be_backed_up(self, tmp_path: Path) -> None:
        store = SQLiteStore(":memory:")
        await store.open()
        await start(store, "run")
        await store.backup(str(tmp_path / "copy.db"))
        await store.close()
        other = SQLiteStore(str(tmp_path / "copy.db"))
        await other.open()
        assert await other.get("run") is not None
        await other.close()

    async def test_a_backup_is_restored_in_the_place_of_an_empty_store(
        self, store: SQLiteStore, tmp_path: Path
    ) -> None:
        await start(store, "run")
        copy, target = str(tmp_path / "copy.db"), str(tmp_path / "target.db")
        await store.backup(copy)
        restore(copy, target)
        restored = SQLiteStore(target)
        await restored.open()
        assert await restored.get("run") is not None
        await start(restored, "later")
        with pytest.raises(StoreUnavailable, match="holds data"):
            restore(copy, target)
        with pytest.raises(StoreUnavailable, match="in use"):
            restore(copy, target, force=True)
        assert await restored.get("later") is not None
        await restored.close()
        restore(copy, target, force=True)
        await restored.open()
        assert await restored.get("later") is None
        assert await restored.get("run") is not None
        await restored.close()

    async def test_what_is_no_backup_is_not_restored(self, tmp_path: Path) -> None:
        junk = tmp_path / "junk.db"
        junk.write_bytes(b"junk" * 1000)
        with pytest.raises(StoreCorrupt):
            restore(str(junk), str(tmp_path / "target.db"))
        foreign = tmp_path / "foreign.db"
        db = sqlite3.connect(foreign)
        db.execute("CREATE TABLE t (x)")
        db.close()
        with pytest.raises(StoreCorrupt, match="not a Holdfast store"):
            restore(str(foreign), str(tmp_path / "target.db"))
        with pytest.raises(StoreUnavailable):
            restore(str(tmp_path / "absent.db"), str(tmp_path / "target.db"))
        assert not (tmp_path / "target.db").exists()

    async def test_pruning_leaves_no_orphans(self, store: SQLiteStore) -> None:
        await worker(store)
        for n in range(3):
            await end(store, await started_and_claimed(store, f"run-{n}"), 2)
        await store.prune(NOW + 1, 10)
        for table in ("runs", "journal", "inbox", "promises"):
            counted = store._reader._db.execute(f"SELECT count(*) FROM {table}").fetchone()
            assert counted == (0,), table

    async def test_limiters_that_are_at_rest_are_forgotten_though_runs_are_kept(
        self, store: SQLiteStore
    ) -> None:
        day = 24 * 3_600_000_000
        for name, at in (("rested", NOW), ("busy", NOW + day)):
            await store.reserve([Reservation(name, 1_000_000)], at)
        await store.prune(0, 200, now=NOW + day)
        assert store._reader._db.execute("SELECT name FROM limits").fetchall() == [("busy",)]


async def test_an_entry_reserves_room_for_what_is_to_come(store: SQLiteStore) -> None:
    await worker(store)
    (started,) = await store.commit([Start(new_run("run"), claim_for="w1")])
    assert isinstance(started, Started)
    reserved = "format, codec, encryption_key, previous_hash, blob, uuid"
    found = store._reader._db.execute(f"SELECT {reserved} FROM journal").fetchone()
    assert found == (1, 0, None, None, None, None)
