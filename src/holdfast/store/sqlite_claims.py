"""Claiming runs and handing them back.

A claim looks only at runs that are due, whose workflow is served, and which are not behind another
of their session: the index `runs_ready` leads it from lane to lane (see lanes.py), straight to
these. What their queues allow is in sqlite_queues.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from holdfast.clock import NEVER, Micros
from holdfast.errors import LeaseLost
from holdfast.store import sqlite_sessions
from holdfast.store.base import Claimed
from holdfast.store.lanes import LANES_MAX, Lane, Line, random_start
from holdfast.store.rows import run_row
from holdfast.store.sqlite_lanes import Db
from holdfast.store.sqlite_queues import Allowance, allowance
from holdfast.store.sqlite_rows import SQL, entry_values
from holdfast.types import Entry, Kind, RunKey, RunRow, Status, WorkerId

SUSPECT_STRIKES = 2
_ANY_STRIKES = 1 << 62
_ROUNDS_MAX = 100
_NEWEST, _LANE = 28, 29  # columns of `claimable` after those of the run

Head = tuple[str, str, int, int, int]
"""A workflow, a queue, a priority; are there fairness keys in line; are some to be put there?"""


def claim(
    db: Db,
    worker: WorkerId,
    workflows: Sequence[str],
    now: Micros,
    limit: int,
    alone: bool,
) -> list[Claimed]:
    if db.execute(SQL["is_worker"], (worker,)).fetchone() is None:
        raise LeaseLost(
            f"Worker {worker} is not registered: it was taken for dead, or never registered."
        )
    wanted = {"workflows": json.dumps(list(workflows)), "now": now}
    heads: list[Head] = db.execute(SQL["ready_heads"], wanted).fetchall()
    if not heads:
        return []
    claiming = _Claiming(db, worker, now, limit, alone)
    heads.sort(key=lambda head: -head[2])
    for _, level in groupby(heads, key=lambda head: head[2]):
        places = list(level)
        # A round takes what it finds, or takes it out of the queue: the next sees others.
        for _ in range(_ROUNDS_MAX):
            if claiming.over or not claiming.round(places):
                break
    claiming.save()
    return claiming.claimed


class _Claiming:
    """One claim, as far as it has got."""

    def __init__(self, db: Db, worker: WorkerId, now: Micros, limit: int, alone: bool) -> None:
        self._db, self._worker, self._now, self._limit, self._alone = db, worker, now, limit, alone
        self.claimed: list[Claimed] = []
        self.over = limit <= 0
        self._allowances: dict[str, Allowance | None] = {}
        self._served: dict[tuple[str, str], int] = {}

    def _allowed(self, queue: str) -> Allowance | None:
        if queue not in self._allowances:
            self._allowances[queue] = allowance(self._db, queue, self._worker)
        return self._allowances[queue]

    def round(self, places: list[Head]) -> bool:
        """Takes runs of one priority in turn; True: there may be more."""
        line = Line(self._lanes(places))
        room = self._limit - len(self.claimed)
        lanes = line.first(room)
        if not lanes:
            return False
        each = -(-room // len(lanes))
        self._fetch(lanes, places[0][2], each)
        before, passed_over = len(self.claimed), False
        in_turn = line.in_turn()
        suspect = self._suspect([row for _, (row, _) in in_turn])
        for lane, (row, newest) in in_turn:
            if suspect is not None and row.key != suspect:
                continue
            if row.strikes >= SUSPECT_STRIKES and (self.claimed or suspect is None):
                continue
            if not self._may_take(row):
                continue
            if not _its_turn(self._db, row, self._now):
                passed_over = True
                continue
            self._take(lane, row, newest)
            if row.strikes >= SUSPECT_STRIKES or len(self.claimed) >= self._limit:
                self.over = True
                return False
        full = any(len(lane.due) >= each for lane in lanes)
        return passed_over or (full and len(self.claimed) > before)

    def _suspect(self, due: list[RunRow]) -> RunKey | None:
        """A suspect goes alone, and others may have to wait for it long: so it waits for its turn
        until none of them has waited longer."""
        if self.claimed or not any(row.strikes >= SUSPECT_STRIKES for row in due):
            return None
        oldest = min(due, key=lambda row: (row.ready_at, row.key))
        return oldest.key if oldest.strikes >= SUSPECT_STRIKES else None

    def _lanes(self, places: list[Head]) -> list[Lane[tuple[RunRow, int]]]:
        found: list[Lane[tuple[RunRow, int]]] = []
        for head in places:
            workflow, queue, _, keyed, sleepers_due = head
            allowed = self._allowed(queue)
            if allowed is not None and allowed.room <= 0:
                continue
            found.append(Lane(workflow, queue))
            if sleepers_due:
                where = {"workflow": workflow, "queue": queue, "priority": head[2]}
                change = {**where, "now": self._now, "limit": LANES_MAX}
                self._db.execute(SQL["put_in_line"], change)
            if keyed or sleepers_due:
                found += self._keyed_lanes(head, allowed)
        return found

    def _keyed_lanes(self, head: Head, allowed: Allowance | None) -> list[Lane[tuple[RunRow, int]]]:
        workflow, queue, priority = head[:3]
        new_too = allowed is None or allowed.new_at <= self._now
        found: dict[str, int | None] = {}
        where = {"workflow": workflow, "queue": queue, "priority": priority, "limit": LANES_MAX}
        for prefix in ("+", ">+") if new_too else (">+",):
            until = prefix[:-1] + ","
            scan = {**where, "prefix": len(prefix), "until": until}
            keys = self._db.execute(SQL["keyed_lanes"], {**scan, "from": prefix}).fetchall()
            if len(keys) >= LANES_MAX:
                # Too many to look at: from a random place on, and round to the first again.
                begin = {**scan, "from": prefix + random_start()}
                keys = self._db.execute(SQL["keyed_lanes"], begin).fetchall() + keys
            found.update(keys[:LANES_MAX])
        lowest = self._db.execute(SQL["share"], (queue,)).fetchone() if found else None
        floor: int = lowest[0] if lowest is not None else 0
        return [
            Lane(workflow, queue, key, max(floor, self._served.get((queue, key), served or 0)))
            for key, served in found.items()
        ]

    def _fetch(self, lanes: list[Lane[tuple[RunRow, int]]], priority: int, each: int) -> None:
        asked = []
        for lane in lanes:
            allowed = self._allowed(lane.queue)
            new_too = allowed is None or allowed.new_at <= self._now
            name = f"+{lane.key}" if lane.key else ""
            asked.append((lane.workflow, lane.queue, name if new_too else None, f">{name}"))
        wanted: dict[str, Any] = {"lanes": json.dumps(asked), "priority": priority}
        suspects_too = self._alone and not self.claimed
        strikes = _ANY_STRIKES if suspects_too else SUSPECT_STRIKES
        wanted.update(now=self._now, limit=each, strikes=strikes)
        for found in self._db.execute(SQL["claimable"], wanted).fetchall():
            due = lanes[found[_LANE]].due
            if len(due) < each:
                due.append((run_row(found), found[_NEWEST] or 0))

    def _may_take(self, row: RunRow) -> bool:
        allowed = self._allowed(row.queue)
        if allowed is None:
            return True
        return allowed.room > 0 and (row.epoch > 0 or allowed.new_at <= self._now)

    def _take(self, lane: Lane[tuple[RunRow, int]], row: RunRow, newest: int) -> None:
        allowed = self._allowed(row.queue)
        if allowed is not None:
            allowed.take(row.epoch == 0, self._now)
        if lane.key:
            # What was lowest when it was its turn is where everybody is by now.
            self._served[lane.queue, ""] = lane.served
            lane.served += 1
            self._served[lane.queue, lane.key] = lane.served
        self.claimed.append(_take(self._db, self._worker, row, newest, self._now))

    def save(self) -> None:
        for (queue, key), served in self._served.items():
            self._db.execute(SQL["serve_share"], (queue, key, served))
        for allowed in self._allowances.values():
            if allowed is not None:
                allowed.save(self._db)


def _its_turn(db: Db, row: RunRow, now: Micros) -> bool:
    return row.session is None or sqlite_sessions.is_next(
        db, row.key, row.session, row.parent, row.parent_step, now
    )


def _take(db: Db, worker: WorkerId, row: RunRow, newest: int, now: Micros) -> Claimed:
    row.status, row.owner, row.ready_at, row.reason = Status.RUNNING, worker, None, None
    row.epoch += 1
    row.updated_at = now
    seq = newest + 1
    db.execute(SQL["take"], (worker, row.epoch, now, row.key))
    entry = Entry(seq, Kind.CLAIM, worker, now)
    db.execute(SQL["insert_entry"], entry_values(row.key, row.epoch, entry))
    if row.session is not None:
        sqlite_sessions.took(db, row.key, row.session)
    return Claimed(row, seq)


def is_behind(db: Db, workflow: str, queue: str, priority: int, now: Micros) -> bool:
    """Whether a run that is started now must not be claimed in passing: its queue has limits, or
    others are ahead of it."""
    where = {"workflow": workflow, "queue": queue}
    declared, occupied = db.execute(SQL["in_queue"], where).fetchone()
    if declared or not occupied:
        return bool(declared)
    at: int | None = priority
    while at is not None:
        here = {**where, "priority": at, "now": now}
        found, at = db.execute(SQL["is_behind"], here).fetchone()
        if found:
            return True
    return False


def next_ready(
    db: Db, workflows: Sequence[str], alone: bool, worker: WorkerId | None
) -> Micros | None:
    strikes = _ANY_STRIKES if alone else SUSPECT_STRIKES
    wanted = {"workflows": json.dumps(list(workflows)), "strikes": strikes}
    times: list[Micros] = []
    for queue, *found in db.execute(SQL["next_ready"], wanted).fetchall():
        new = [at for at in found[:3] if at is not None]
        resumed = [at for at in found[3:] if at is not None]
        allowed = allowance(db, queue, worker)
        if allowed is not None:
            if allowed.room <= 0:
                continue  # it rings when a run of it leaves memory, or somebody reopens it
            new = [max(at, allowed.new_at) for at in new]
        times += new + resumed
    return min((at for at in times if at < NEVER), default=None)


def release(db: Db, worker: WorkerId, runs: Sequence[tuple[RunKey, int]], now: Micros) -> int:
    released = 0
    for run, epoch in runs:
        held = {"now": now, "run": run, "epoch": epoch, "worker": worker}
        released += db.execute(SQL["release"], held).rowcount
    db.news = db.news or released > 0
    return released
