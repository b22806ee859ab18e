"""Rows of the tables as the dataclasses that every layer shares: the same for every store.

Enums are looked up in dictionaries and bound as plain strings: both are several times faster than
letting `enum` and the drivers convert, and a journal has many rows.
"""

from __future__ import annotations

from typing import Any

from holdfast.clock import Micros, to_datetime
from holdfast.errors import IdRetired, SessionBusy
from holdfast.store.lanes import shown_key
from holdfast.types import (
    Entry,
    Kind,
    Mail,
    MailKind,
    NewRun,
    PromiseRow,
    RunRow,
    ScheduleRow,
    Status,
)

STATUSES = {status.value: status for status in Status}
KINDS = {kind.value: kind for kind in Kind}
MAIL_KINDS = {kind.value: kind for kind in MailKind}

Row = Any
"""Whatever the driver gives: something that is indexed and unpacked like a tuple."""


def run_row(row: Row) -> RunRow:
    """A RunRow from RUN_COLUMNS; further columns of the query are left alone."""
    return RunRow(
        key=row[0],
        id=row[1],
        workflow=row[2],
        version=row[3],
        queue=row[4],
        priority=row[5],
        status=STATUSES[row[6]],
        epoch=row[7],
        owner=row[8],
        incarnation=row[9],
        generation=row[10],
        input=row[11],
        digest=row[12],
        output=row[13],
        created_at=row[14],
        updated_at=row[15],
        ended_at=row[16],
        ready_at=row[17],
        deadline_at=row[18],
        session=row[19],
        while_waiting=row[20],
        parent=row[21],
        parent_step=row[22],
        options=row[23],
        strikes=row[24],
        resumes=row[25],
        reason=row[26],
        fairness_key=shown_key(row[27]),
    )


def entry(row: Row) -> Entry:
    seq, kind, key, at, epoch, position, attempt, failed, *rest = row
    return Entry(seq, KINDS[kind], key, at, epoch, position, attempt, failed != 0, *rest)


def mail(row: Row) -> Mail:
    id, run, kind, name, payload, at, failed = row
    return Mail(id, run, MAIL_KINDS[kind], name, payload, at, failed != 0)


def promise(row: Row) -> PromiseRow:
    run, name, key, kind, type, prompt, created_at, resolved = row
    return PromiseRow(run, name, key, kind, type, prompt, created_at, resolved != 0)


def schedule(row: Row) -> ScheduleRow:
    """A ScheduleRow from SCHEDULE_COLUMNS."""
    return ScheduleRow(
        name=row[0],
        workflow=row[1],
        input=row[2],
        digest=row[3],
        options=row[4],
        cron=row[5],
        zone=row[6],
        catch_up=row[7],
        paused=row[8] != 0,
        next_at=row[9],
        last_at=row[10],
        last_run=row[11],
        updated_at=row[12],
    )


def row_of(new: NewRun, key: int, owner: str | None) -> RunRow:
    """The row that a new run has become."""
    return RunRow(
        key=key,
        id=new.id,
        workflow=new.workflow,
        version=new.version,
        queue=new.queue,
        priority=new.priority,
        status=Status.PENDING if owner is None else Status.RUNNING,
        epoch=0 if owner is None else 1,
        owner=owner,
        incarnation=new.incarnation,
        generation=1,
        input=new.input,
        digest=new.digest,
        output=None,
        created_at=new.created_at,
        updated_at=new.created_at,
        ended_at=None,
        ready_at=new.ready_at if owner is None else None,
        deadline_at=new.deadline_at,
        session=new.session,
        while_waiting=new.while_waiting,
        parent=new.parent,
        parent_step=new.parent_step,
        options=new.options,
        strikes=0,
        resumes=0,
        reason=None,
        fairness_key=new.fairness_key,
    )


def busy_with(session: str, run: str) -> SessionBusy:
    """Why what a session holds cannot be deleted."""
    return SessionBusy(
        f"Session {session!r} has the run {run!r}, which has not ended and may need what the "
        "session holds: nothing was deleted. Cancel the run, or wait for its end."
    )


def retired(id: str, status: str, ended_at: Micros, expires_at: Micros) -> IdRetired:
    """Why an id of a deleted run cannot be used."""
    ended, free = (to_datetime(at).isoformat(" ", "seconds") for at in (ended_at, expires_at))
    return IdRetired(
        f"Run {id!r} ended ({status}) at {ended} and was deleted since. So that no request is run "
        f"twice, its id cannot be used again before {free}: use another one."
    )
