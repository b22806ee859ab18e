"""Several processes on one file: what is SQLite's own. The rest is in test_processes.py."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("holdfast.testing")

from holdfast.store.base import Appended  # noqa: E402
from holdfast.store.sqlite import SQLiteStore  # noqa: E402
from holdfast.testing.conformance.given import (  # noqa: E402
    NOW,
    append,
    do,
    start,
    started_and_claimed,
    step,
    worker,
)
from holdfast.types import WorkerRow  # noqa: E402
from tests.store.spawning import (  # noqa: E402
    Spawn,
    come,
    line,
    only_worker,
    spawning,
    watched,
)


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """Starts one of the children's functions on the test's database."""
    with spawning(str(tmp_path / "runs.db")) as run:
        yield run


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(str(tmp_path / "runs.db"))
    await store.open()
    yield store
    await store.close()


class TestSharing:
    def test_many_processes_may_create_the_file_at_once(self, spawn: Spawn) -> None:
        children = [spawn("start_run", f"run-{n}") for n in range(6)]
        assert [line(child) for child in children] == [["True"]] * 6


class TestDeath:
    async def test_the_lock_is_polled_where_the_kernel_cannot_tell(
        self, store: SQLiteStore, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        child = spawn("live", "w1")
        line(child)
        died = await watched(store, await only_worker(store))
        child.kill()
        await come(died)

    async def test_a_workers_children_do_not_keep_its_lock(
        self, store: SQLiteStore, spawn: Spawn
    ) -> None:
        child = spawn("live_with_children", "w1")
        survivors = [int(pid) for pid in line(child)]
        try:
            child.kill()
            child.wait()
            assert store._liveness._is_free("w1")
        finally:
            for pid in survivors:
                os.kill(pid, signal.SIGKILL)

    async def test_nor_does_whoever_inherited_it(self, store: SQLiteStore, spawn: Spawn) -> None:
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
