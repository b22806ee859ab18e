"""The inbox: what outsiders want a run to know, and how that wakes it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.clock import Micros
from holdfast.errors import AlreadyEnded, AlreadyResolved, UnknownRun
from holdfast.store import sqlite_sessions
from holdfast.store.rows import STATUSES
from holdfast.store.rows import mail as mail_row
from holdfast.store.sqlite_lanes import Db
from holdfast.store.sqlite_rows import SQL, Row, blob
from holdfast.types import HALTED, Mail, MailKind, RunId, RunKey, RunRow, Status

_ONCE = frozenset({MailKind.CANCEL, MailKind.PAUSE})


def mail(db: Db, runs: Sequence[tuple[RunKey, int]]) -> list[Mail]:
    if not runs:
        return []
    if len(runs) == 1:
        found = db.execute(SQL["mail_of_one"], runs[0])
    else:
        found = db.execute(SQL["mail_of_many"], (json.dumps(runs),))
    return [mail_row(row) for row in found]


def post_to(
    db: Db, id: RunId, kind: MailKind, name: str, payload: bytes | None, now: Micros
) -> Mail:
    state = db.execute(SQL["run_state"], (id,)).fetchone()
    if state is None:
        raise UnknownRun(f"There is no run {id!r}.")
    if STATUSES[state[1]].ended:
        raise AlreadyEnded(f"Run {id!r} has ended ({state[1]}); it takes no mail.")
    return _post(db, state, kind, name, payload, now, failed=False, id=id)


def post(
    db: Db, run: RunKey, kind: MailKind, name: str, payload: bytes | None, now: Micros
) -> Mail:
    """Posts to a run that is known to exist and not to have ended."""
    state = db.execute(SQL["key_state"], (run,)).fetchone()
    return _post(db, state, kind, name, payload, now, failed=False, id=str(run))


def refuse(db: Db, run: RunKey, mail: int | None) -> None:
    """An answer did not fit: another may be given."""
    db.execute(SQL["reopen_promise"], {"run": run, "mail": mail})
    db.execute(SQL["delete_answer"], {"run": run, "mail": mail})


def post_child(
    db: Db,
    parent: RunKey,
    generation: int,
    step: str,
    output: bytes | None,
    failed: bool,
    now: Micros,
) -> None:
    """Tells a parent that a child ended, if it is still the one that started it."""
    state = db.execute(SQL["key_state"], (parent,)).fetchone()
    if state is None or STATUSES[state[1]].ended or state[7] != generation:
        return
    if db.execute(SQL["find_mail"], (parent, MailKind.CHILD.value, step)).fetchone() is None:
        _post(db, state, MailKind.CHILD, step, output, now, failed=failed, id="")


def end(db: Db, run: RunKey, status: Status, output: bytes | None, now: Micros) -> None:
    """The run is over: its session's slot is free, and its parent hears of it."""
    session, parent, parent_step, generation = db.execute(SQL["place_of"], (run,)).fetchone()
    db.execute(SQL["end"], (status.value, blob(output), now, now, run))
    if session is not None:
        db.execute(SQL["use_session"], (now, session))
        sqlite_sessions.pass_on(db, session, now)
        db.ended.append(run)
    if parent is not None and parent_step is not None:
        failed = status is not Status.COMPLETED
        post_child(db, parent, generation, parent_step, output, failed, now)
    db.news = True


def end_unclaimed(db: Db, run: RunKey, status: Status, output: bytes | None, now: Micros) -> None:
    """Ends a run of which nobody has to unwind anything: no worker needs to see it."""
    db.execute(SQL["add_end"], {"run": run, "now": now})
    end(db, run, status, output, now)


def expire(db: Db, now: Micros, output: bytes, limit: int) -> int:
    overdue = db.execute(SQL["overdue"], {"now": now, "limit": limit}).fetchall()
    for state in overdue:
        if _needs_no_worker(state):
            end_unclaimed(db, state[0], Status.FAILED, output, now)
        else:
            _take_back_pause(db, state[0])
            _wake(db, state, now)
    return len(overdue)


def tell_again(db: Db, child: RunRow, step: str, now: Micros) -> None:
    """A parent starts a child that is there: it is to hear of its end, also if that was before."""
    assert child.parent is not None
    state = db.execute(SQL["key_state"], (child.parent,)).fetchone()
    if state is None or STATUSES[state[1]].ended:
        return
    place = {"run": child.key, "step": step, "generation": state[7]}
    if not child.status.ended:
        db.execute(SQL["adopt"], place)
        return
    db.execute(SQL["adopt_ended"], place)
    db.execute(SQL["delete_delivered_child_mail"], {"run": child.parent, "step": step})
    failed = child.status is not Status.COMPLETED
    post_child(db, child.parent, state[7], step, child.output, failed, now)


def _post(
    db: Db,
    state: Row,
    kind: MailKind,
    name: str,
    payload: bytes | None,
    now: Micros,
    *,
    failed: bool,
    id: str,
) -> Mail:
    run: RunKey = state[0]
    there = None
    if kind is MailKind.PAUSE:
        there = db.execute(SQL["find_mail_of_kind"], (run, MailKind.CANCEL.value)).fetchone()
    if there is None and kind in _ONCE:
        there = db.execute(SQL["find_mail_of_kind"], (run, kind.value)).fetchone()
    elif kind is MailKind.PROMISE or kind is MailKind.CHILD:
        there = db.execute(SQL["find_mail"], (run, kind.value, name)).fetchone()
    if there is not None:
        if kind is MailKind.PROMISE:
            raise AlreadyResolved(
                f"Promise {name!r} of run {id!r} was answered before; the first answer stands."
            )
        if kind is MailKind.CANCEL:
            _stir(db, state, kind, now)
            db.news = True
        return mail_row(there)
    values = (run, kind.value, name, payload, now, 1 if failed else 0)
    posted = db.execute(SQL["insert_mail"], values).lastrowid
    assert posted is not None
    if kind is MailKind.PROMISE:
        db.execute(SQL["resolve_promise"], (run, name))
    _stir(db, state, kind, now)
    db.news = True
    return Mail(posted, run, kind, name, payload, now, failed)


def _stir(db: Db, state: Row, kind: MailKind, now: Micros) -> None:
    """What new mail does to a run that nobody owns; an owner looks into the inbox by itself."""
    run, status, session = state[0], STATUSES[state[1]], state[2]
    if kind is MailKind.CANCEL:
        _take_back_pause(db, run)
    if status is Status.RUNNING:
        pass
    elif kind is MailKind.PAUSE:
        if status is Status.PENDING and state[8] > now:
            db.execute(SQL["keep_delay"], {"ready_at": state[8], "run": run})
        if status not in HALTED:
            db.execute(SQL["pause"], (now, run))
            sqlite_sessions.pass_on(db, session, now)
    elif kind is not MailKind.CANCEL:
        if status is Status.WAITING or (status is Status.PARKED and state[8] is not None):
            _wake(db, state, now)
    elif _needs_no_worker(state):
        end_unclaimed(db, run, Status.CANCELLED, None, now)
    elif status is not Status.PENDING:
        _wake(db, state, now)


def _needs_no_worker(state: Row) -> bool:
    """Whether nobody has to unwind a run, before it ends: its code never ran, or must not."""
    return bool(state[6] == 0) or STATUSES[state[1]] is Status.QUARANTINED


def _wake(db: Db, state: Row, now: Micros) -> None:
    run, _, session, holds, parent, parent_step = state[:6]
    go = sqlite_sessions.may_go(db, session, bool(holds), parent, parent_step)
    db.execute(SQL["wake"], {"now": now, "blocked": 0 if go else 1, "run": run})
    db.news = True


def _take_back_pause(db: Db, run: RunKey) -> None:
    db.execute(SQL["delete_mail_of_kind"], (run, MailKind.PAUSE.value))
