"""Runs as outsiders see, change and delete them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.clock import Micros
from holdfast.errors import NotResumable, UnknownRun
from holdfast.store import sqlite_sessions
from holdfast.store.base import Started
from holdfast.store.rows import entry as entry_row
from holdfast.store.rows import promise as promise_row
from holdfast.store.rows import run_row
from holdfast.store.sqlite_errors import moved
from holdfast.store.sqlite_lanes import Db
from holdfast.store.sqlite_rows import SQL
from holdfast.store.sqlite_starts import insert_run
from holdfast.types import (
    ENDED,
    HALTED,
    Entry,
    MailKind,
    NewRun,
    PromiseRow,
    RunFilter,
    RunId,
    RunKey,
    RunRow,
    Status,
)

_IDS_PER_RUN = 20
"""Expired ids go many more at a time than runs: they are small, and all of a busy day expire on
one."""
_HOUR = 3_600_000_000  # more than clocks differ by


def get(db: Db, id: RunId) -> RunRow | None:
    found = db.execute(SQL["run_by_id"], (id,)).fetchone()
    return run_row(found) if found is not None else None


def _known(db: Db, id: RunId) -> RunRow:
    row = get(db, id)
    if row is None:
        raise UnknownRun(f"There is no run {id!r}.")
    return row


def settled(db: Db, ids: Sequence[RunId], path: str) -> list[RunRow]:
    found = [run_row(row) for row in db.execute(SQL["settled_runs"], (json.dumps(list(ids)),))]
    if not found and db.execute(SQL["has_left"]).fetchone():
        raise moved(db, path)
    return found


def children(db: Db, run: RunKey) -> list[RunRow]:
    return [run_row(row) for row in db.execute(SQL["children"], (run,))]


def promises(db: Db, run: RunKey) -> list[PromiseRow]:
    return [promise_row(row) for row in db.execute(SQL["promises"], (run,))]


def journal(db: Db, run: RunKey, limit: int = -1) -> list[Entry]:
    return [entry_row(row) for row in db.execute(SQL["journal"], (run, limit))]


def find(db: Db, which: RunFilter) -> list[RunRow]:
    conditions: list[str] = []
    values: list[object] = []

    def when(condition: str, *bound: object) -> None:
        conditions.append(condition)
        values.extend(bound)

    if which.status:
        if not which.status & ENDED:
            when("r.ended_at IS NULL")  # leads SQLite to the index of the runs that are open
        names = sorted(status.value for status in which.status)
        when("r.status IN (SELECT value FROM json_each(?))", json.dumps(names))
    if which.workflow is not None:
        when("r.workflow = ?", which.workflow)
    if which.session is not None:
        when("r.session = ?", which.session)
    if which.queue is not None:
        when("r.queue = ?", which.queue)
    if which.id_prefix:
        # Not LIKE: a prefix may hold its wildcards.
        when("substr(r.id, 1, ?) = ?", len(which.id_prefix), which.id_prefix)
    if which.created_after is not None:
        when("r.created_at > ?", which.created_after)
    if which.created_before is not None:
        when("r.created_at < ?", which.created_before)
    if which.parent is not None:
        when("r.parent = (SELECT key FROM runs WHERE id = ?)", which.parent)
    order = "DESC" if which.newest_first else "ASC"
    sql = " AND ".join([SQL["find_runs"], *conditions]) + f" ORDER BY r.key {order} LIMIT ?"
    return [run_row(row) for row in db.execute(sql, (*values, which.limit))]


def _blocked(db: Db, row: RunRow) -> int:
    """Whether a run that becomes claimable is behind another of its session."""
    holds = row.session is not None and bool(db.execute(SQL["holds"], (row.key,)).fetchone()[0])
    go = sqlite_sessions.may_go(db, row.session, holds, row.parent, row.parent_step)
    return 0 if go else 1


def resume(db: Db, id: RunId, now: Micros) -> RunRow:
    row = _known(db, id)
    if row.status not in HALTED:
        raise NotResumable(
            f"Run {id!r} is {row.status}: only a paused, parked or quarantined run is resumed."
        )
    db.execute(SQL["resume"], {"now": now, "blocked": _blocked(db, row), "run": row.key})
    db.execute(SQL["delete_mail_of_kind"], (row.key, MailKind.PAUSE.value))
    db.news = True
    return _known(db, id)


def rerun(db: Db, id: RunId, epoch: int, now: Micros, drop: Sequence[int]) -> RunRow:
    row = _known(db, id)
    if row.status not in (Status.FAILED, Status.CANCELLED):
        raise NotResumable(
            f"Run {id!r} is {row.status}: only a failed or cancelled run is run again."
        )
    if row.epoch != epoch:
        raise NotResumable(f"Run {id!r} went on meanwhile: somebody else ran it again.")
    db.executemany(SQL["forget_child"], [(row.key, seq) for seq in drop])
    db.executemany(SQL["delete_entry"], [(row.key, seq) for seq in drop])
    db.execute(SQL["close_gaps"], (row.key,))
    db.execute(SQL["turn_positive"], (row.key,))
    for kind in (MailKind.CANCEL, MailKind.PAUSE):
        db.execute(SQL["delete_mail_of_kind"], (row.key, kind.value))
    db.execute(SQL["withdraw_end"], (row.key,))
    db.execute(SQL["reopen"], {"now": now, "blocked": _blocked(db, row), "run": row.key})
    db.news = True
    return _known(db, id)


def fork(db: Db, id: RunId, seq: int, new: NewRun) -> Started:
    source = _known(db, id)
    found = get(db, new.id)
    if found is not None:
        return Started(found, created=False)
    go = sqlite_sessions.may_go(db, new.session, False, new.parent, new.parent_step)
    row = insert_run(db, new, None, blocked=not go)
    db.execute(SQL["copy_journal"], (row.key, source.key, seq))
    db.execute(SQL["copy_promises"], {"target": row.key, "source": source.key})
    db.news = True
    return Started(row, created=True)


def prune(db: Db, ended_before: Micros, limit: int, now: Micros, keep_ids_until: Micros) -> int:
    db.execute(SQL["forget_ids"], (now, _IDS_PER_RUN * limit))
    keys = [key for (key,) in db.execute(SQL["prunable"], (ended_before, limit))]
    if keys:
        which = (json.dumps(keys),)
        if keep_ids_until > now:
            db.execute(SQL["retire_ids"], {"keys": which[0], "until": keep_ids_until})
        for table in ("journal", "inbox", "promises", "joins", "runs"):
            db.execute(SQL[f"prune_{table}"], which)
    db.execute(SQL["prune_shares"])
    db.execute(SQL["prune_limits"], (now - _HOUR, now - _HOUR))
    return len(keys)
