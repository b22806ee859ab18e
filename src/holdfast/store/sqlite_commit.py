"""The hot path: a batch of appends and starts in one transaction.

SQLite's write lock makes check-then-insert atomic, so the fence is a plain look at each run's
newest entry, and everything that passes is inserted in one go. A batch that holds something SQLite
cannot take is rolled back and done again one operation at a time, so that the bad one fails alone.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from holdfast.errors import LeaseLost, StoreError
from holdfast.store import sqlite_mail, sqlite_sessions
from holdfast.store.base import (
    Append,
    Appended,
    ContinueAs,
    End,
    MessageWrite,
    Operation,
    Outcome,
    Refused,
    Start,
    StateWrite,
    Suspend,
)
from holdfast.store.sqlite_errors import is_moved
from holdfast.store.sqlite_lanes import Db
from holdfast.store.sqlite_rows import SQL, Row, entry_values
from holdfast.store.sqlite_starts import start
from holdfast.types import Kind, RunKey

_TAIL, _TAILS, _INSERT_ENTRY = SQL["tail"], SQL["tails"], SQL["insert_entry"]
_TAILS_FROM = 4
"""From so many runs on, one query for all is faster than one for each."""

BAD_OPERATION = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    AttributeError,
    OverflowError,
    TypeError,
    ValueError,
)
"""What one operation can do to a batch: a place taken twice, a value SQLite cannot hold."""


_APPENDED = Appended()


class BadBatch(Exception):
    """Some operation of the batch cannot be done; nothing has been written yet."""


Tails = dict[RunKey, tuple[int, int]]
"""Of each run: its epoch and the newest place of its journal."""


def commit(db: Db, operations: Sequence[Operation]) -> list[Outcome]:
    rows: list[Row] = []
    try:
        tails = _tails(db, operations) if len(operations) >= _TAILS_FROM else {}
        outcomes = [
            _append(db, operation, rows, tails)
            if type(operation) is Append
            else start(db, operation, rows)  # type: ignore[arg-type]
            for operation in operations
        ]
        _insert(db, rows)
    except BAD_OPERATION as error:
        if is_moved(error):
            raise
        raise BadBatch from error
    return outcomes


def commit_one_by_one(db: Db, operations: Sequence[Operation]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for operation in operations:
        db.execute("SAVEPOINT operation")
        rows: list[Row] = []
        try:
            if isinstance(operation, Append):
                outcome = _append(db, operation, rows, {})
            else:
                outcome = start(db, operation, rows)
            _insert(db, rows)
        except BAD_OPERATION as error:
            if is_moved(error):
                raise
            db.execute("ROLLBACK TO operation")
            refusal = StoreError(f"{_name_of(db, operation)} could not be written: {error}")
            refusal.__cause__ = error
            outcome = Refused(refusal)
        db.execute("RELEASE operation")
        outcomes.append(outcome)
    return outcomes


def _insert(db: Db, rows: list[Row]) -> None:
    if len(rows) == 1:
        db.execute(_INSERT_ENTRY, rows[0])
    elif rows:
        db.executemany(_INSERT_ENTRY, rows)


def _tails(db: Db, operations: Sequence[Operation]) -> Tails:
    keys = [operation.run for operation in operations if isinstance(operation, Append)]
    found = db.execute(_TAILS, (json.dumps(keys),))
    return {key: (epoch, seq) for key, epoch, seq in found}


def _name_of(db: Db, operation: Operation) -> str:
    if isinstance(operation, Start):
        return f"The start of run {operation.run.id!r}"
    found = db.execute(SQL["who_owns"], (operation.run,)).fetchone()
    return f"An append to run {found[0] if found else operation.run!r}"


# Appends


def _append(db: Db, append: Append, rows: list[Row], tails: Tails) -> Outcome:
    run, epoch, entries = append.run, append.epoch, append.entries
    tail = tails.get(run) or db.execute(_TAIL, (run,)).fetchone()
    if tail is None or tail[0] != epoch or (entries and tail[1] != entries[0].seq - 1):
        return Refused(_lease_lost(db, append))
    if entries:
        if entries[-1].seq != entries[0].seq + len(entries) - 1:
            raise ValueError("its sequence numbers have gaps")
        # An append may follow in the same batch, and must find the place this one leaves.
        tails[run] = (epoch, entries[-1].seq)
    if append.promises:
        _open_promises(db, append)
    if append.session:
        _write_session(db, append.session)
    then = append.then
    if type(then) is ContinueAs:
        _insert(db, rows)
        rows.clear()
        _continue_as(db, append, then)
        tails.pop(run, None)
        return _APPENDED
    for entry in entries:
        rows.append(entry_values(run, epoch, entry))
        if entry.kind is Kind.REFUSED:
            sqlite_mail.refuse(db, run, entry.mail)
    if then is None:
        return _APPENDED
    if type(then) is End:
        sqlite_mail.end(db, run, then.status, then.output, append.at)
        tails.pop(run, None)
        return _APPENDED
    assert type(then) is Suspend
    if not _suspend(db, append, then, rows):
        return _APPENDED
    tails.pop(run, None)
    return Appended(suspended=True)


def _lease_lost(db: Db, append: Append) -> LeaseLost:
    found = db.execute(SQL["who_owns"], (append.run,)).fetchone()
    if found is None:
        return LeaseLost(f"The run of key {append.run} is gone; nothing was written.")
    id, status, owner, epoch = found
    whose = f"worker {owner} owns it" if owner else "nobody owns it"
    return LeaseLost(
        f"Run {id!r} was taken from this worker: it is {status}, {whose} at epoch {epoch}, and "
        f"this worker's epoch was {append.epoch}. Nothing was written."
    )


def _open_promises(db: Db, append: Append) -> None:
    for promise in append.promises:
        values = {
            "run": append.run,
            "name": promise.name,
            "key": promise.key,
            "kind": promise.kind,
            "type": promise.type,
            "prompt": promise.prompt,
            "created_at": promise.created_at,
        }
        db.execute(SQL["upsert_promise"], values)


def _write_session(db: Db, writes: Sequence[StateWrite | MessageWrite]) -> None:
    for session in {write.session for write in writes}:
        db.execute(SQL["know_session"], (session,))
    for write in writes:
        if isinstance(write, MessageWrite):
            db.execute(SQL["add_message"], (write.session, write.payload))
        elif write.value is None:
            db.execute(SQL["delete_state"], (write.session, write.key))
        else:
            db.execute(SQL["set_state"], (write.session, write.key, write.value))


def _suspend(db: Db, append: Append, then: Suspend, rows: list[Row]) -> bool:
    # The write lock is held since the transaction's first statement, and posting takes it, too:
    # mail is either seen here, or posted later to a run that is waiting already.
    if db.execute(SQL["unseen_mail"], (append.run, then.mail_seen)).fetchone()[0]:
        return False
    at, status = append.at, then.status.value
    changes = (status, then.ready_at, then.reason, at, then.unwinding)
    db.execute(SQL["suspend"], (*changes, append.run))
    session, strikes, limited = db.execute(SQL["turn_of"], (append.run,)).fetchone()
    if strikes:
        _insert(db, rows)
        rows.clear()
        db.execute(SQL["forgive"], (append.run,))
    sqlite_sessions.pass_on(db, session, at)
    # Others may sleep until a later deadline than this one, or wait for its place in the queue.
    db.news = db.news or then.ready_at is not None or bool(limited)
    return True


def _continue_as(db: Db, append: Append, then: ContinueAs) -> None:
    run = append.run
    delivered = [entry.mail for entry in append.entries if entry.mail is not None]
    db.execute(SQL["delete_delivered_mail"], {"run": run, "delivered": json.dumps(delivered)})
    db.execute(SQL["delete_journal"], (run,))
    db.execute(SQL["delete_promises"], (run,))
    afresh = {"at": append.at, "input": then.input, "digest": then.digest, "run": run}
    db.execute(SQL["continue_as"], afresh)
    db.news = True
