"""Whose turn it is in a session.

A session's slot is held by the run that has `holds_session`: set when it is claimed, cleared when
it ends or (while_waiting="release") suspends. The awaited children of a holder share its slot.

`blocked` keeps the runs behind a holder out of the queue, so that claims need not look at them. It
is a hint that may be missing but is never left standing: whoever frees a slot, or takes the run
that is next out of the queue, calls `pass_on`. `is_next` decides, under the write lock.
"""

from __future__ import annotations

import json

from holdfast.clock import Micros
from holdfast.store.rows import busy_with, run_row
from holdfast.store.sqlite_lanes import Db
from holdfast.store.sqlite_rows import SQL
from holdfast.types import RunKey, RunRow


def holder(db: Db, session: str) -> RunKey | None:
    found: RunKey | None = db.execute(SQL["holder"], (session,)).fetchone()[0]
    return found


def inherits(db: Db, session: str, parent: RunKey | None, parent_step: str | None) -> bool:
    """Whether a child with this parent shares the slot of a run above it."""
    if parent is None or parent_step is None:
        return False
    return bool(db.execute(SQL["inherits"], (parent, session)).fetchone()[0])


def may_go(
    db: Db, session: str | None, holds: bool, parent: RunKey | None, parent_step: str | None
) -> bool:
    """Whether the slot is free for this run; the order of arrival is another matter."""
    return (
        session is None
        or holds
        or holder(db, session) is None
        or inherits(db, session, parent, parent_step)
    )


def is_next(
    db: Db,
    run: RunKey,
    session: str,
    parent: RunKey | None,
    parent_step: str | None,
    now: Micros,
) -> bool:
    """Whether a run that is due may be claimed; if not, it leaves the queue to whoever is next."""
    held_by = holder(db, session)
    if held_by is not None:
        if held_by == run or inherits(db, session, parent, parent_step):
            return True
        # Of several holders (children of one run) `held_by` is the oldest; this may be another.
        if db.execute(SQL["holds"], (run,)).fetchone()[0]:
            return True
        db.execute(SQL["set_blocked"], (1, run))
        return False
    first = db.execute(SQL["first_due"], (session, now)).fetchone()
    if first is None or first[0] == run:
        return True
    db.execute(SQL["set_blocked"], (1, run))
    db.execute(SQL["set_blocked"], (0, first[0]))
    return False


def ahead(db: Db, run: RunKey, now: Micros) -> RunRow | None:
    """The run that this one, which is due, waits behind."""
    place = db.execute(SQL["turn"], (run, now)).fetchone()
    if place is None:
        return None
    session, parent, parent_step = place
    first = holder(db, session)
    if first is not None and inherits(db, session, parent, parent_step):
        return None
    if first is None:
        first = db.execute(SQL["first_due"], (session, now)).fetchone()[0]
    if first == run:
        return None
    return run_row(db.execute(SQL["run_by_key"], (first,)).fetchone())


def pass_on(db: Db, session: str | None, now: Micros) -> None:
    """Puts the run whose turn it is into the queue, if the slot is free."""
    if session is None or holder(db, session) is not None:
        return
    first = db.execute(SQL["first_due"], (session, now)).fetchone()
    if first is None:
        first = db.execute(SQL["first_ready"], (session,)).fetchone()
    if first is not None:
        db.execute(SQL["set_blocked"], (0, first[0]))
        db.news = True


def took(db: Db, run: RunKey, session: str) -> None:
    """The run was claimed: its awaited children may go on beside it."""
    if db.execute(SQL["unblock_heirs"], (run, session)).rowcount:
        db.news = True


def delete(db: Db, session: str) -> bool:
    """Forgets what a session holds; False: it holds nothing."""
    runs = db.execute(SQL["session_runs"], (session,)).fetchall()
    if runs:
        raise busy_with(session, runs[0][1])
    return _forget(db, [session])


def prune(db: Db, used_before: Micros, limit: int) -> int:
    idle = [name for (name,) in db.execute(SQL["idle_sessions"], (used_before, limit))]
    if idle:
        _forget(db, idle)
    return len(idle)


def _forget(db: Db, sessions: list[str]) -> bool:
    which = (json.dumps(sessions),)
    tables = ("state", "messages", "sessions")
    return sum(db.execute(SQL[f"forget_{table}"], which).rowcount for table in tables) > 0
