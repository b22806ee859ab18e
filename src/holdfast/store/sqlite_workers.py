"""Workers, their leases, and what becomes of their runs when they die.

Leases count on the monotonic clock, which all processes of a boot share: a jump of the wall clock
ends none, and a lease of another boot is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.clock import Micros
from holdfast.store import host
from holdfast.store.base import Reaped
from holdfast.store.sqlite_lanes import Db, Writer
from holdfast.store.sqlite_rows import SQL, Row
from holdfast.types import QUARANTINE_STRIKES, RunId, WorkerId, WorkerRow


def publish(db: Db, worker: WorkerRow, since: float) -> None:
    db.execute(
        SQL["insert_worker"],
        (
            worker.id,
            worker.host,
            worker.pid,
            worker.process_started,
            worker.started_at,
            worker.lease_seconds,
            since + worker.lease_seconds,
            host.boot_id(),
            worker.note,
        ),
    )
    db.news = True


def workers(db: Db) -> list[WorkerRow]:
    return [_worker_row(row) for row in db.execute(SQL["workers"])]


def _worker_row(row: Row) -> WorkerRow:
    id, name, pid, process_started, started_at, lease_seconds, note, lease_until, boot = row
    left = lease_until - time.monotonic() if boot == host.boot_id() else 0.0
    return WorkerRow(id, name, pid, process_started, started_at, lease_seconds, left, note)


def deregister(db: Db, worker: WorkerId) -> None:
    if db.execute(SQL["release_all"], (worker,)).rowcount:
        db.news = True
    db.execute(SQL["delete_worker"], (worker,))


def reap(
    db: Db, worker: WorkerId, now: Micros, is_dead: Callable[[WorkerRow], bool]
) -> Reaped | None:
    found = db.execute(SQL["worker"], (worker,)).fetchone()
    if found is None:
        return None
    row = _worker_row(found)
    if row.lease_left_seconds > 0 and not is_dead(row):
        return None
    db.execute(SQL["delete_worker"], (worker,))
    runs, quarantined = free(db, worker, now)
    return Reaped(row, runs, quarantined)


def free(db: Db, worker: WorkerId, now: Micros | None) -> tuple[list[RunId], list[RunId]]:
    """Frees a worker's runs, and quarantines those that keep killing theirs."""
    runs: list[RunId] = []
    quarantined: list[RunId] = []
    for key, id, strikes, progressed in db.execute(SQL["owned"], (worker,)).fetchall():
        strikes = 0 if progressed else strikes + 1
        change = {"now": now, "strikes": strikes, "run": key}
        if strikes >= QUARANTINE_STRIKES:
            reason = (
                f"its worker died {strikes} times without the run getting any further, the last "
                f"one was {worker}; resume it when the cause is gone"
            )
            db.execute(SQL["quarantine"], {**change, "reason": reason})
            quarantined.append(id)
        else:
            db.execute(SQL["free"], change)
            runs.append(id)
    db.news = True
    return runs, quarantined


class LeaseKeeper:
    """Renews a lease over a connection of its own, from any one thread."""

    def __init__(
        self,
        writer: Writer,
        worker: WorkerRow,
        on_close: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._worker = worker
        self._on_close = on_close

    def renew(self) -> bool:
        # Counted from before the wait for the lock, so that we never believe in a longer lease
        # than the others do.
        until = time.monotonic() + self._worker.lease_seconds
        wait = self._worker.lease_seconds / 3
        return self._writer.run_now(
            lambda db: _renew(db, self._worker.id, until), wait_seconds=wait
        )

    def is_alive(self) -> bool:
        return True  # the kernel frees its lock, and nothing else does

    def hand_back(self, note: str) -> int:
        return self._writer.run_now(self._hand_back_in(note))

    def _hand_back_in(self, note: str) -> Callable[[Db], int]:
        def work(db: Db) -> int:
            runs, quarantined = free(db, self._worker.id, None)
            db.execute(SQL["note_worker"], (note, self._worker.id))
            return len(runs) + len(quarantined)

        return work

    def close(self) -> None:
        self._on_close()


def _renew(db: Db, worker: WorkerId, until: float) -> bool:
    return db.execute(SQL["renew"], (until, worker)).rowcount == 1
