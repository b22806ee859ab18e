"""Starts: what becomes of a run that is to be accepted, and of those that joined another one."""

from __future__ import annotations

import json

from holdfast.errors import IdReused, SessionBusy
from holdfast.store import sqlite_claims, sqlite_mail, sqlite_sessions
from holdfast.store.base import Outcome, Refused, Start, Started
from holdfast.store.lanes import shown_key, stored_key
from holdfast.store.rows import retired, row_of, run_row
from holdfast.store.sqlite_lanes import Db
from holdfast.store.sqlite_rows import SQL, Row, blob, entry_values
from holdfast.types import Entry, Kind, MailKind, NewRun, RunKey, RunRow, Status

_KEPT = (
    "workflow",
    "version",
    "incarnation",
    "queue",
    "priority",
    "created_at",
    "ready_at",
    "deadline_at",
    "while_waiting",
)


def start(db: Db, operation: Start, rows: list[Row]) -> Outcome:
    new = operation.run
    found = db.execute(SQL["run_by_id"], (new.id,)).fetchone()
    if found is not None:
        return Started(_found(db, new, run_row(found)), created=False)
    stone = db.execute(SQL["tombstone"], (new.id, new.created_at)).fetchone()
    if stone is not None:
        return Refused(retired(new.id, *stone))
    goes = True
    if new.session is not None:
        joined = db.execute(SQL["find_join"], (new.id,)).fetchone()
        if joined is not None:
            return _joined_before(db, new, *joined)
        heir = sqlite_sessions.inherits(db, new.session, new.parent, new.parent_step)
        if not heir and new.on_busy != "enqueue":
            busy = _find_session_busy(db, new)
            if busy is not None:
                return busy
        goes = heir or sqlite_sessions.holder(db, new.session) is None
    claim_for = operation.claim_for if goes and _may_claim(db, operation) else None
    row = insert_run(db, new, claim_for, blocked=not goes)
    if claim_for is not None:
        claim = Entry(1, Kind.CLAIM, claim_for, new.created_at)
        rows.append(entry_values(row.key, row.epoch, claim))
    else:
        db.news = True
    return Started(row, created=True, claimed=claim_for is not None)


def _found(db: Db, new: NewRun, row: RunRow) -> RunRow:
    same = (row.parent, row.workflow, row.digest) == (new.parent, new.workflow, new.digest)
    if new.parent is None or new.parent_step is None or row.parent_step is None or not same:
        return row
    sqlite_mail.tell_again(db, row, new.parent_step, new.created_at)
    return run_row(db.execute(SQL["run_by_key"], (row.key,)).fetchone())


def _find_session_busy(db: Db, new: NewRun) -> Outcome | None:
    """What becomes of a run that does not simply queue up; None: it goes on as any other."""
    assert new.session is not None
    others = db.execute(SQL["session_runs"], (new.session,)).fetchall()
    if not others:
        return None
    if new.on_busy == "reject":
        return Refused(
            SessionBusy(
                f"Session {new.session!r} is busy with run {others[0][1]!r}, so run {new.id!r} was "
                'not accepted: on_busy="reject".'
            )
        )
    if new.on_busy == "join":
        current = sqlite_sessions.holder(db, new.session) or others[0][0]
        mail = sqlite_mail.post(db, current, MailKind.MESSAGE, "", new.input, new.created_at)
        db.execute(SQL["add_join"], (new.id, current, new.digest, mail.id, _spec(new)))
        row = run_row(db.execute(SQL["run_by_key"], (current,)).fetchone())
        return Started(row, created=False, joined=True)
    for key, _ in others:
        db.execute(SQL["forget_unread"], (key,))
        sqlite_mail.post(db, key, MailKind.CANCEL, "", None, new.created_at)
    return None


def _joined_before(db: Db, new: NewRun, run: RunKey, digest: bytes) -> Outcome:
    """A start that joined a run is repeated: its caller did not hear of it, and posts nothing."""
    row = run_row(db.execute(SQL["run_by_key"], (run,)).fetchone())
    if digest == new.digest:
        return Started(row, created=False, joined=True)
    return Refused(
        IdReused(
            f"The id {new.id!r} was used before, by a start that joined run {row.id!r} with other "
            "arguments; use another id, or the same arguments."
        )
    )


# Joins that came to nothing


def _spec(new: NewRun) -> str:
    """What a start that joins would have started, but for its input. PostgreSQL writes the same."""
    kept = {name: getattr(new, name) for name in _KEPT}
    kept["options"] = None if new.options is None else new.options.hex()
    kept["fairness_key"] = stored_key(new.fairness_key)
    return json.dumps(kept)


def start_unread(db: Db) -> None:
    """What joined a run that has ended, and was not received by it, is started again as if it came
    now: it joins the session's next run, or is a run of its own."""
    for run in db.ended:
        for id, digest, spec, mail, *given in db.execute(SQL["unread_joins"], (run,)).fetchall():
            db.execute(SQL["delete_join"], (id,))
            db.execute(SQL["delete_mail"], (mail,))
            kept = json.loads(spec)
            if kept["options"] is not None:
                kept["options"] = bytes.fromhex(kept["options"])
            kept["fairness_key"] = shown_key(kept["fairness_key"])
            kept |= {"id": id, "digest": digest, "input": given[0], "session": given[1]}
            start(db, Start(NewRun(on_busy="join", **kept)), [])


def _may_claim(db: Db, start: Start) -> bool:
    new = start.run
    if start.claim_for is None or new.ready_at > new.created_at:
        return False
    if db.execute(SQL["is_worker"], (start.claim_for,)).fetchone() is None:
        return False  # it has been reaped; the run is accepted all the same
    if sqlite_claims.is_behind(db, new.workflow, new.queue, new.priority, new.created_at):
        return False
    if new.session is None:
        return True
    # Runs of this session that came earlier and are due go first.
    return db.execute(SQL["first_due"], (new.session, new.created_at)).fetchone() is None


def insert_run(db: Db, new: NewRun, claim_for: str | None, *, blocked: bool) -> RunRow:
    claimed = claim_for is not None
    status = Status.RUNNING if claimed else Status.PENDING
    epoch = 1 if claimed else 0
    ready_at = None if claimed else new.ready_at
    key = db.execute(
        SQL["insert_run"],
        (
            new.id,
            new.workflow,
            new.version,
            new.queue,
            new.priority,
            status.value,
            epoch,
            claim_for,
            new.incarnation,
            blob(new.input),
            blob(new.digest),
            new.created_at,
            new.created_at,
            ready_at,
            new.deadline_at,
            new.session,
            new.while_waiting,
            new.parent,
            new.parent_step,
            new.parent,  # once more, for its generation
            new.options,
            1 if blocked else 0,
            1 if claimed and new.session is not None else 0,
            stored_key(new.fairness_key),
        ),
    ).lastrowid
    assert key is not None
    return row_of(new, key, claim_for)
