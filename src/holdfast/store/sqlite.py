"""The embedded store: one SQLite file, shared by any number of processes of one machine.

Every verb is one transaction (see sqlite_lanes.py for where it runs); what they do is in the files
named sqlite_*. A store belongs to the process that opened it: a forked child opens its own. What it
does not do: share a file between machines. Network file systems are refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from holdfast.clock import Micros
from holdfast.errors import NotOpen
from holdfast.store import (
    host,
    sqlite_claims,
    sqlite_commit,
    sqlite_mail,
    sqlite_queues,
    sqlite_runs,
    sqlite_sessions,
    sqlite_stale,
    sqlite_workers,
)
from holdfast.store.base import (
    Claimed,
    Leasekeeper,
    Operation,
    Outcome,
    Reaped,
    Reservation,
    Started,
)
from holdfast.store.doorbell import Doorbell
from holdfast.store.liveness import Liveness
from holdfast.store.sqlite_lanes import Db, Reader, Writer
from holdfast.store.sqlite_open import MEMORY, connected, open_database, path_of
from holdfast.store.sqlite_rows import SQL
from holdfast.store.sqlite_schedules import Schedules
from holdfast.store.sqlite_starts import start_unread
from holdfast.types import (
    Entry,
    Mail,
    MailKind,
    NewRun,
    PromiseRow,
    QueueRow,
    RunFilter,
    RunId,
    RunKey,
    RunRow,
    WorkerId,
    WorkerRow,
)

_JOURNAL_INLINE_MAX = 256


class SQLiteStore(Schedules):
    commits_at_once = 1
    poll_seconds = 2.0

    def __init__(self, url_or_path: str) -> None:
        self.url = url_or_path
        self.path = path_of(url_or_path)
        folder = None if self.path == MEMORY else f"{self.path}-workers"
        self._bell = Doorbell(folder)
        self._liveness = Liveness(folder)
        self._keepers: dict[WorkerId, Writer] = {}
        self._lanes: tuple[Writer, Reader] | None = None

    # Life

    async def open(self) -> None:
        if self._lanes is not None:
            return
        self._lanes = await asyncio.to_thread(self._open_lanes)

    def _open_lanes(self) -> tuple[Writer, Reader]:
        db = open_database(self.path)
        writer = Writer(db, self.path, self._bell.ring, self._break_stale_lock, start_unread)
        if self.path == MEMORY:
            return writer, Reader(db, self.path, writer.lock)
        try:
            return writer, Reader(connected(self.path), self.path)
        except BaseException:
            writer.close_now()
            raise

    async def close(self) -> None:
        lanes, self._lanes = self._lanes, None
        if lanes is None:
            return
        writer, reader = lanes
        writer.check()
        self._bell.close()
        for worker in list(self._keepers):
            self._close_keeper(worker)
        await reader.close()
        await writer.close()

    @property
    def _writer(self) -> Writer:
        if self._lanes is None:
            raise NotOpen(f"The store {self.path} is not open: `await store.open()` first.")
        return self._lanes[0]

    @property
    def _reader(self) -> Reader:
        if self._lanes is None:
            raise NotOpen(f"The store {self.path} is not open: `await store.open()` first.")
        return self._lanes[1]

    # Runs, by their owner

    async def commit(self, operations: Sequence[Operation], *, request: str = "") -> list[Outcome]:
        # No answer of a local file is ever lost: what raised was rolled back.
        try:
            return await self._writer.run(lambda db: sqlite_commit.commit(db, operations))
        except sqlite_commit.BadBatch:
            return await self._writer.run(
                lambda db: sqlite_commit.commit_one_by_one(db, operations)
            )

    async def claim(
        self,
        worker: WorkerId,
        workflows: Sequence[str],
        now: Micros,
        limit: int,
        *,
        alone: bool = False,
    ) -> list[Claimed]:
        return await self._writer.run(
            lambda db: sqlite_claims.claim(db, worker, workflows, now, limit, alone)
        )

    async def journal(self, run: RunKey) -> list[Entry]:
        # Most journals are short; a long one is read on the thread, from its beginning.
        limit = _JOURNAL_INLINE_MAX
        entries = await self._reader.run(lambda db: sqlite_runs.journal(db, run, limit))
        if len(entries) < limit:
            return entries
        return await self._reader.run(lambda db: sqlite_runs.journal(db, run), short=False)

    async def mail(self, runs: Sequence[tuple[RunKey, int]]) -> list[Mail]:
        return await self._reader.run(lambda db: sqlite_mail.mail(db, runs))

    async def release(
        self, worker: WorkerId, runs: Sequence[tuple[RunKey, int]], now: Micros
    ) -> int:
        return await self._writer.run(lambda db: sqlite_claims.release(db, worker, runs, now))

    async def owned(self, worker: WorkerId) -> list[tuple[RunKey, int]]:
        return await self._reader.run(lambda db: db.execute(SQL["owned_by"], (worker,)).fetchall())

    async def next_ready(
        self, workflows: Sequence[str], *, alone: bool = True, worker: WorkerId | None = None
    ) -> Micros | None:
        return await self._reader.run(
            lambda db: sqlite_claims.next_ready(db, workflows, alone, worker)
        )

    async def expire(self, now: Micros, output: bytes, *, limit: int = 100) -> int:
        return await self._writer.run(lambda db: sqlite_mail.expire(db, now, output, limit))

    # Runs, by outsiders

    async def get(self, run: RunId) -> RunRow | None:
        return await self._reader.run(lambda db: sqlite_runs.get(db, run))

    async def settled(self, runs: Sequence[RunId]) -> list[RunRow]:
        return await self._reader.run(lambda db: sqlite_runs.settled(db, runs, self.path))

    async def find(self, which: RunFilter) -> list[RunRow]:
        return await self._reader.run(lambda db: sqlite_runs.find(db, which), short=False)

    async def post(
        self, run: RunId, kind: MailKind, name: str, payload: bytes | None, now: Micros
    ) -> Mail:
        return await self._writer.run(
            lambda db: sqlite_mail.post_to(db, run, kind, name, payload, now)
        )

    async def resume(self, run: RunId, now: Micros) -> RunRow:
        return await self._writer.run(lambda db: sqlite_runs.resume(db, run, now))

    async def rerun(self, run: RunId, epoch: int, now: Micros, drop: Sequence[int]) -> RunRow:
        return await self._writer.run(
            lambda db: sqlite_runs.rerun(db, run, epoch, now, drop), short=False
        )

    async def fork(self, run: RunId, seq: int, new: NewRun) -> Started:
        return await self._writer.run(lambda db: sqlite_runs.fork(db, run, seq, new), short=False)

    async def promises(self, run: RunKey) -> list[PromiseRow]:
        return await self._reader.run(lambda db: sqlite_runs.promises(db, run))

    async def ahead(self, run: RunKey, now: Micros) -> RunRow | None:
        return await self._reader.run(lambda db: sqlite_sessions.ahead(db, run, now))

    async def children(self, run: RunKey) -> list[RunRow]:
        return await self._reader.run(lambda db: sqlite_runs.children(db, run))

    # Sessions

    async def session_state(self, session: str) -> dict[str, bytes]:
        return await self._reader.run(lambda db: dict(db.execute(SQL["state"], (session,))))

    async def session_messages(self, session: str, *, after: int = 0) -> list[tuple[int, bytes]]:
        return await self._reader.run(
            lambda db: db.execute(SQL["messages"], (session, after)).fetchall(), short=False
        )

    async def delete_session(self, session: str) -> bool:
        return await self._writer.run(lambda db: sqlite_sessions.delete(db, session), short=False)

    async def prune_sessions(self, used_before: Micros, limit: int) -> int:
        return await self._writer.run(
            lambda db: sqlite_sessions.prune(db, used_before, limit), short=False
        )

    # Queues and limiters

    async def declare(self, queues: Sequence[QueueRow]) -> None:
        await self._writer.run(lambda db: sqlite_queues.declare(db, queues))

    async def pause_queue(self, queue: str, *, paused: bool = True) -> None:
        await self._writer.run(lambda db: sqlite_queues.pause(db, queue, paused))

    async def queues(self, now: Micros) -> list[QueueRow]:
        return await self._reader.run(lambda db: sqlite_queues.queues(db, now), short=False)

    async def reserve(self, reservations: Sequence[Reservation], now: Micros) -> list[Micros]:
        return await self._writer.run(lambda db: sqlite_queues.reserve(db, reservations, now))

    async def hold_off(self, name: str, until: Micros) -> None:
        await self._writer.run(lambda db: sqlite_queues.hold_off(db, name, until))

    # Workers

    async def register(self, worker: WorkerRow) -> Leasekeeper:
        writer = self._writer
        name, pid, began = host.this_process()
        worker = worker._replace(host=name, pid=pid, process_started=began)
        self._close_keeper(worker.id)  # of an earlier life under this id
        # The lock comes first: whoever sees the row may look at the lock at once.
        self._liveness.hold(worker.id)
        try:
            since = time.monotonic()
            await writer.run(lambda db: sqlite_workers.publish(db, worker, since))
            own = writer if self.path == MEMORY else await asyncio.to_thread(self._open_keeper)
        except BaseException:
            self._liveness.release(worker.id)
            self._liveness.unlink(worker.id)
            raise
        self._keepers[worker.id] = own
        return sqlite_workers.LeaseKeeper(own, worker, lambda: self._close_keeper(worker.id))

    def _open_keeper(self) -> Writer:
        # A lease does not outlive the boot, so its renewal need not reach the disk.
        db = connected(self.path, synchronous="NORMAL")
        return Writer(db, self.path, self._bell.ring, self._break_stale_lock, start_unread)

    def _close_keeper(self, worker: WorkerId) -> None:
        own = self._keepers.pop(worker, None)
        if own is not None and self.path != MEMORY:
            own.close_now()
        self._liveness.release(worker)

    async def deregister(self, worker: WorkerId) -> None:
        await self._writer.run(lambda db: sqlite_workers.deregister(db, worker))
        self._close_keeper(worker)
        self._liveness.unlink(worker)

    async def workers(self) -> list[WorkerRow]:
        return await self._reader.run(sqlite_workers.workers)

    async def reap(self, worker: WorkerId, now: Micros, *, dead: bool = False) -> Reaped | None:
        def work(db: Db) -> Reaped | None:
            return sqlite_workers.reap(
                db, worker, now, lambda row: dead or self._liveness.is_dead(row)
            )

        reaped = await self._writer.run(work)
        if reaped is not None:
            self._liveness.unlink(worker)
        return reaped

    async def is_dead(self, worker: WorkerRow) -> bool:
        return self._liveness.is_dead(worker)

    def watch(self, worker: WorkerRow, callback: Callable[[], None]) -> Callable[[], None]:
        return self._liveness.watch(worker, callback)

    async def break_stale_lock(self) -> WorkerRow | None:
        """Kills the worker that holds the write lock past its lease (a stopped process), if any.

        A writer that has waited for a second does this by itself.
        """
        return await self._reader.on_thread(self._break_stale_lock)

    def _break_stale_lock(self) -> WorkerRow | None:
        if self.path == MEMORY or self._lanes is None:
            return None
        return sqlite_stale.break_stale_lock(
            self.path, self._reader.run_now(sqlite_workers.workers)
        )

    # The rest

    async def time(self) -> Micros | None:
        return None

    def listen(self, callback: Callable[[], None], *, ends: bool = True) -> Callable[[], None]:
        # The bell tells everybody that something is new, and nobody what.
        return self._bell.listen(callback)

    async def prune(
        self, ended_before: Micros, limit: int, *, now: Micros = 0, keep_ids_until: Micros = 0
    ) -> int:
        return await self._writer.run(
            lambda db: sqlite_runs.prune(db, ended_before, limit, now, keep_ids_until),
            short=False,
        )

    async def backup(self, path: str) -> None:
        from holdfast.store import sqlite_upkeep  # only commands need it

        await self._reader.on_thread(sqlite_upkeep.backup, self.path, self._reader, path)

    async def check(self) -> list[str]:
        """What SQLite finds wrong with the file; empty if nothing."""
        from holdfast.store import sqlite_upkeep

        return await self._reader.run(sqlite_upkeep.check, short=False)
