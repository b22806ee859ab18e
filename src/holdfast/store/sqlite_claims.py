"""Claiming runs and handing them back.

A claim looks only at runs that are due, whose workflow is served, and which are not behind another
of their session: the index `runs_ready` leads it straight to these.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.clock import Micros
from holdfast.errors import LeaseLost
from holdfast.store import sqlite_sessions
from holdfast.store.base import Claimed
from holdfast.store.rows import run_row
from holdfast.store.sqlite_lanes import Db
from holdfast.store.sqlite_rows import SQL, entry_values
from holdfast.types import Entry, Kind, RunKey, RunRow, Status, WorkerId

SUSPECT_STRIKES = 2
_ANY_STRIKES = 1 << 62
_ROUNDS_MAX = 100


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
    claimed: list[Claimed] = []
    wanted = {"workflows": json.dumps(list(workflows)), "now": now}
    # A round takes what it finds, or takes it out of the queue: either way the next sees others.
    for _ in range(_ROUNDS_MAX):
        room = limit - len(claimed)
        if room <= 0:
            break
        suspects_too = alone and not claimed
        strikes = _ANY_STRIKES if suspects_too else SUSPECT_STRIKES
        due = db.execute(SQL["claimable"], {**wanted, "limit": room, "strikes": strikes}).fetchall()
        passed_over = False
        for row, newest in ((run_row(found), found[27]) for found in due):
            if row.strikes >= SUSPECT_STRIKES and claimed:
                continue
            if not _its_turn(db, row, now):
                passed_over = True
                continue
            claimed.append(_take(db, worker, row, newest or 0, now))
            if row.strikes >= SUSPECT_STRIKES:
                return claimed
        if len(due) < room and not passed_over:
            break
    return claimed


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


def next_ready(db: Db, workflows: Sequence[str], alone: bool) -> Micros | None:
    strikes = _ANY_STRIKES if alone else SUSPECT_STRIKES
    wanted = {"workflows": json.dumps(list(workflows)), "strikes": strikes}
    found: Micros | None = db.execute(SQL["next_ready"], wanted).fetchone()[0]
    return found


def release(db: Db, worker: WorkerId, runs: Sequence[tuple[RunKey, int]], now: Micros) -> int:
    released = 0
    for run, epoch in runs:
        held = {"now": now, "run": run, "epoch": epoch, "worker": worker}
        released += db.execute(SQL["release"], held).rowcount
    db.news = db.news or released > 0
    return released
