"""Queues: what was declared of them, what they still allow, how busy they are; and limiters."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.clock import Micros
from holdfast.errors import UnknownQueue
from holdfast.store import pace
from holdfast.store.base import Reservation
from holdfast.store.sqlite_lanes import Db
from holdfast.store.sqlite_rows import SQL
from holdfast.types import QueueRow, WorkerId

_NO_LIMIT = 1 << 62


class Allowance:
    """What a queue still allows a worker to claim."""

    __slots__ = ("_next_at", "_row", "room")

    def __init__(self, row: QueueRow, total: int, mine: int) -> None:
        self._row = row
        self._next_at = row.next_at
        self.room = 0 if row.paused else _NO_LIMIT
        if row.concurrency is not None:
            self.room = min(self.room, row.concurrency - total)
        if row.per_worker is not None:
            self.room = min(self.room, row.per_worker - mine)

    @property
    def new_at(self) -> Micros:
        """When the rate allows another run that was never claimed."""
        row = self._row
        if row.rate_count is None or row.rate_micros is None:
            return 0
        interval = pace.interval(row.rate_count, row.rate_micros)
        return pace.free_at(self._next_at, interval, row.rate_burst)

    def take(self, is_new: bool, now: Micros) -> None:
        row = self._row
        self.room -= 1
        if is_new and row.rate_count is not None and row.rate_micros is not None:
            interval = pace.interval(row.rate_count, row.rate_micros)
            self._next_at = pace.after(self._next_at, interval, now)

    def save(self, db: Db) -> None:
        if self._next_at != self._row.next_at:
            db.execute(SQL["pace_queue"], (self._next_at, self._row.name))


def allowance(db: Db, queue: str, worker: WorkerId | None) -> Allowance | None:
    """None: nobody has limited this queue."""
    found = db.execute(SQL["queue"], (queue,)).fetchone()
    if found is None:
        return None
    row = QueueRow(*found)
    running: dict[str, int] = {}
    if row.concurrency is not None or row.per_worker is not None:
        running = dict(db.execute(SQL["running"], (queue,)).fetchall())
    return Allowance(row, sum(running.values()), running.get(worker or "", 0))


def declare(db: Db, queues: Sequence[QueueRow]) -> None:
    for q in queues:
        said = (q.name, q.concurrency, q.per_worker, q.rate_count, q.rate_micros, q.rate_burst)
        if db.execute(SQL["declare_queue"], said).rowcount > 0:
            db.news = True  # perhaps it allows more now


def pause(db: Db, queue: str, paused: bool) -> None:
    known = db.execute(SQL["pause_queue"], (int(paused), queue)).rowcount > 0
    if not known and paused:
        known = db.execute(SQL["pause_undeclared_queue"], {"name": queue}).rowcount > 0
    if not known:
        raise UnknownQueue(f"There is no queue {queue!r}: nobody declared it or put runs into it.")
    db.news = True


def queues(db: Db, now: Micros) -> list[QueueRow]:
    found = (QueueRow(*row) for row in db.execute(SQL["queues"], {"now": now}))
    return [row._replace(paused=bool(row.paused)) for row in found]


# Limiters


def reserve(db: Db, reservations: Sequence[Reservation], now: Micros) -> list[Micros]:
    return [_reserve(db, one, now) for one in reservations]


def _reserve(db: Db, one: Reservation, now: Micros) -> Micros:
    found = db.execute(SQL["limit"], (one.name,)).fetchone()
    next_at, held_until = found or (0, 0)
    if one.place is not None and one.place >= held_until:
        return one.place
    at = max(now, held_until, pace.free_at(next_at, one.interval, one.burst))
    db.execute(SQL["pace_limit"], (one.name, pace.after(next_at, one.interval, at)))
    return at


def hold_off(db: Db, name: str, until: Micros) -> None:
    db.execute(SQL["hold_limit"], (name, until))
