"""Several processes on one file: what survives their death, and who notices it."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("holdfast.testing")

from holdfast.store.base import Appended, Start  # noqa: E402
from holdfast.store.sqlite import SQLiteStore  # noqa: E402
from holdfast.testing.conformance.given import (  # noqa: E402
    NOW,
    SIGNAL_SECONDS_MAX,
    Bell,
    append,
    claim,
    do,
    new_run,
    row,
    start,
    started_and_claimed,
    step,
    worker,
)
from holdfast.types import RunFilter, Status, WorkerRow  # noqa: E402

CHILDREN = Path(__file__).parent / "children.py"
Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """Starts one of the children's functions on the test's database."""
    started: list[subprocess.Popen[str]] = []

    def run(what: str, *args: object) -> subprocess.Popen[str]:
        command = [sys.executable, str(CHILDREN), what, str(tmp_path / "runs.db"), *map(str, args)]
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        started.append(child)
        return child

    yield run
    for child in started:
        child.kill()
        child.communicate()


def line(child: subprocess.Popen[str]) -> list[str]:
    assert child.stdout is not None
    return child.stdout.readline().split()


def tell(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(str(tmp_path / "runs.db"))
    await store.open()
    yield store
    await store.close()


async def only_worker(store: SQLiteStore) -> WorkerRow:
    (found,) = await store.workers()
    return found


async def watched(store: SQLiteStore, found: WorkerRow) -> asyncio.Event:
    died = asyncio.Event()
    store.watch(found, died.set)
    return died


async def come(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), SIGNAL_SECONDS_MAX)


class TestSharing:
    async def test_no_run_is_claimed_by_two_processes(
        self, store: SQLiteStore, spawn: Spawn
    ) -> None:
        await store.commit([Start(new_run(f"run-{n}")) for n in range(200)])
        children = [spawn("claim_everything", f"w{n}") for n in range(3)]
        for child in children:
            assert line(child) == ["ready"]
        for child in children:
            tell(child)
        claimed = [id for child in children for id in line(child)]
        assert len(claimed) == 200
        assert len(set(claimed)) == 200

    async def test_one_id_started_by_many_processes_is_one_run(
        self, store: SQLiteStore, spawn: Spawn
    ) -> None:
        children = [spawn("start_run", "same") for _ in range(4)]
        created = [line(child) for child in children]
        assert created.count(["True"]) == 1
        assert len(await store.find(RunFilter())) == 1

    def test_many_processes_may_create_the_file_at_once(self, spawn: Spawn) -> None:
        children = [spawn("start_run", f"run-{n}") for n in range(6)]
        assert [line(child) for child in children] == [["True"]] * 6

    async def test_a_process_hears_of_mail_that_another_posted(
        self, store: SQLiteStore, spawn: Spawn
    ) -> None:
        run = await start(store, "run")
        child = spawn("post_when_told", "run")
        assert line(child) == ["ready"]
        bell = Bell(store)
        tell(child)
        await bell.wait()
        (mail,) = await store.mail([(run.key, 0)])
        assert mail.payload == b"from afar"

    def test_a_forked_child_is_told_to_open_its_own_store(self, spawn: Spawn) -> None:
        child = spawn("fork_and_use")
        output, _ = child.communicate()
        refused, went_on = output.splitlines()
        assert refused.startswith("refused:") and "after the fork" in refused
        assert went_on == "went on 2"


class TestDeath:
    @pytest.mark.parametrize("acknowledged", [1, 5, 20, 40, 60])
    def test_what_was_acknowledged_survives_a_kill_and_nothing_is_half_written(
        self, tmp_path: Path, spawn: Spawn, acknowledged: int
    ) -> None:
        child = spawn("commit_forever", "w")
        done = [id for _ in range(acknowledged) for id in line(child)]
        child.send_signal(signal.SIGKILL)
        rest, _ = child.communicate()
        done += rest.split()[: len(rest.split()) // 2 * 2]
        db = sqlite3.connect(tmp_path / "runs.db")
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        query = (
            "SELECT r.id, group_concat(j.seq) FROM (SELECT * FROM journal ORDER BY seq) j "
            "JOIN runs r ON r.key = j.run GROUP BY r.key"
        )
        journals = dict(db.execute(query).fetchall())
        for id in done:
            assert journals[id] == "1,2,3,4", id
        # A batch is three entries for each of two runs: it is there as a whole or not at all.
        assert set(journals.values()) <= {"1", "1,2,3,4"}
        by_batch: dict[str, set[str]] = {}
        for id, places in journals.items():
            by_batch.setdefault(id.rpartition("-")[0], set()).add(places)
        whole = [places for places in by_batch.values() if len(places) > 1]
        assert whole == []
        db.close()

    async def test_the_death_of_a_worker_is_told_at_once(
        self, store: SQLiteStore, spawn: Spawn
    ) -> None:
        child = spawn("live", "w1")
        line(child)
        found = await only_worker(store)
        assert not await store.is_dead(found)
        died = await watched(store, found)
        assert await store.reap("w1", NOW, dead=False) is None
        child.kill()
        await come(died)
        assert await store.is_dead(found)
        reaped = await store.reap("w1", NOW, dead=True)
        assert reaped is not None and reaped.runs == ["run of w1"]
        assert os.listdir(f"{store.path}-workers") == []

    async def test_a_watch_that_was_stopped_tells_nothing(
        self, store: SQLiteStore, spawn: Spawn
    ) -> None:
        child = spawn("live", "w1")
        line(child)
        found = await only_worker(store)
        told: list[int] = []
        stop = store.watch(found, lambda: told.append(1))
        died = await watched(store, found)
        stop()
        child.kill()
        await come(died)
        assert told == []

    async def test_a_death_before_the_watch_is_told_too(
        self, store: SQLiteStore, spawn: Spawn
    ) -> None:
        child = spawn("live", "w1")
        line(child)
        found = await only_worker(store)
        child.kill()
        child.wait()
        await come(await watched(store, found))

    async def test_the_lock_is_polled_where_the_kernel_cannot_tell(
        self, store: SQLiteStore, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        child = spawn("live", "w1")
        line(child)
        died = await watched(store, await only_worker(store))
        child.kill()
        await come(died)

    async def test_a_workers_children_do_not_keep_it_alive(
        self, store: SQLiteStore, spawn: Spawn
    ) -> None:
        child = spawn("live_with_children", "w1")
        survivors = [int(pid) for pid in line(child)]
        found = await only_worker(store)
        try:
            assert not await store.is_dead(found)
            child.kill()
            child.wait()
            assert store._liveness._is_free("w1")
            assert await store.is_dead(found)
        finally:
            for pid in survivors:
                os.kill(pid, signal.SIGKILL)

    async def test_nor_does_whoever_inherited_its_lock(
        self, store: SQLiteStore, spawn: Spawn
    ) -> None:
        child = spawn("live_with_an_heir_of_the_lock", "w1")
        (heir,) = line(child)
        found = await only_worker(store)
        try:
            assert not await store.is_dead(found)
            child.kill()
            assert child.wait() == -signal.SIGKILL
            assert not store._liveness._is_free("w1")
            assert await store.is_dead(found)
        finally:
            os.kill(int(heir), signal.SIGKILL)

    async def test_a_zombie_is_dead(self, store: SQLiteStore, spawn: Spawn) -> None:
        """Nobody has waited for the child yet, so its pid still exists."""
        child = spawn("live", "w1")
        line(child)
        found = await only_worker(store)
        died = await watched(store, found)
        child.kill()
        await come(died)
        os.kill(child.pid, 0)
        assert await store.is_dead(found)

    async def test_a_pid_used_again_does_not_hide_a_death(self, store: SQLiteStore) -> None:
        await worker(store, "w1")
        found = await only_worker(store)
        other = WorkerRow("w1", found.host, found.pid, "another start", NOW, 60)
        second = SQLiteStore(store.path)
        assert not await second.is_dead(found)
        assert await second.is_dead(other)
        assert not await second.is_dead(WorkerRow("w1", "another host", 1, "x", NOW, 60))


class TestStoppedInsideATransaction:
    def stopped(self, spawn: Spawn, lease: float) -> subprocess.Popen[str]:
        child = spawn("stop_inside_a_transaction", "stopped", lease)
        assert line(child) == ["in"]
        os.waitpid(child.pid, os.WUNTRACED)
        return child

    async def test_a_waiting_writer_ends_it_and_carries_on(
        self, store: SQLiteStore, spawn: Spawn
    ) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        child = self.stopped(spawn, lease=0.0)
        assert await do(store, append(run, step(2))) == Appended()
        assert child.wait() == -signal.SIGKILL
        assert await store.mail([(run.key, 0)]) == []
        reaped = await store.reap("stopped", NOW, dead=False)
        assert reaped is not None

    async def test_the_lock_is_broken_when_asked_for(
        self, store: SQLiteStore, spawn: Spawn
    ) -> None:
        child = self.stopped(spawn, lease=0.0)
        broken = await store.break_stale_lock()
        assert broken is not None and broken.id == "stopped"
        assert child.wait() == -signal.SIGKILL
        await start(store, "run")

    async def test_it_is_found_without_proc_locks_too(
        self, store: SQLiteStore, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        child = self.stopped(spawn, lease=0.0)
        monkeypatch.setattr("holdfast.store.sqlite_stale._PROC_LOCKS", "/nowhere")
        broken = await store.break_stale_lock()
        assert broken is not None and broken.pid == child.pid

    async def test_a_worker_that_still_has_its_lease_is_left_alone(
        self, store: SQLiteStore, spawn: Spawn
    ) -> None:
        child = self.stopped(spawn, lease=3600.0)
        assert await store.break_stale_lock() is None
        assert child.poll() is None
        os.kill(child.pid, signal.SIGCONT)
        assert child.wait() == 0
        await start(store, "run")

    async def test_an_overdue_worker_that_holds_no_lock_is_left_alone(
        self, store: SQLiteStore, spawn: Spawn
    ) -> None:
        child = spawn("live", "w1", 0.0)
        line(child)
        assert await store.break_stale_lock() is None
        assert child.poll() is None


async def test_a_takeover_between_processes_fences_the_first_owner(
    store: SQLiteStore, spawn: Spawn
) -> None:
    child = spawn("live", "w1")
    line(child)
    await worker(store, "w2")
    old = await row(store, "run of w1")
    assert (old.status, old.owner) == (Status.RUNNING, "w1")
    await store.reap("w1", NOW, dead=True)
    (claimed,) = await claim(store, "w2")
    outcomes = await store.commit([append(old, step(2)), append(claimed.row, step(3))])
    assert outcomes[1] == Appended()
    assert not isinstance(outcomes[0], Appended)
