"""Schedules in a SQLite file. The write lock makes compare-and-set plain."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.clock import Micros
from holdfast.errors import StoreError
from holdfast.store import sqlite_claims, sqlite_commit
from holdfast.store.base import Due, Refused, Start, Started, Ticked
from holdfast.store.rows import schedule
from holdfast.store.sqlite_lanes import Db, Reader, Writer
from holdfast.store.sqlite_rows import SQL
from holdfast.types import NewRun, ScheduleRow, WorkerId


class Schedules:
    """The store's verbs for them."""

    @property
    def _writer(self) -> Writer:
        raise NotImplementedError

    @property
    def _reader(self) -> Reader:
        raise NotImplementedError

    async def next_due(
        self, workflows: Sequence[str], *, alone: bool = True, worker: WorkerId | None = None
    ) -> Due:
        return await self._reader.run(
            lambda db: Due(
                sqlite_claims.next_ready(db, workflows, alone, worker),
                _next_tick(db, workflows),
                db.execute(SQL["next_deadline"]).fetchone()[0],
            )
        )

    async def schedules(
        self, *, workflows: Sequence[str] | None = None, due_by: Micros | None = None
    ) -> list[ScheduleRow]:
        which = {
            "workflows": None if workflows is None else json.dumps(list(workflows)),
            "due_by": due_by,
        }
        return await self._reader.run(
            lambda db: [schedule(row) for row in db.execute(SQL["schedules"], which)]
        )

    async def put_schedule(self, schedule: ScheduleRow, *, seen: ScheduleRow | None) -> bool:
        return await self._writer.run(lambda db: _put(db, schedule, seen))

    async def delete_schedule(self, name: str) -> bool:
        return await self._writer.run(
            lambda db: db.execute(SQL["delete_schedule"], (name,)).rowcount > 0
        )

    async def tick(
        self,
        seen: ScheduleRow,
        next_at: Micros | None,
        *,
        at: Micros | None = None,
        run: NewRun | None = None,
    ) -> Ticked:
        try:
            return await self._writer.run(lambda db: _tick(db, seen, next_at, at, run))
        except sqlite_commit.BadBatch as error:
            raise StoreError(
                f"A tick of schedule {seen.name!r} could not be written: {error.__cause__}"
            ) from error


def _next_tick(db: Db, workflows: Sequence[str]) -> Micros | None:
    at: Micros | None = db.execute(SQL["next_tick"], (json.dumps(list(workflows)),)).fetchone()[0]
    return at


def _put(db: Db, schedule: ScheduleRow, seen: ScheduleRow | None) -> bool:
    values = schedule._asdict()
    if seen is not None:
        values |= {"seen_updated_at": seen.updated_at, "seen_next_at": seen.next_at}
    done = db.execute(SQL["add_schedule" if seen is None else "change_schedule"], values).rowcount
    db.news = db.news or done > 0  # others may sleep until a later tick than its next one
    return done > 0


def _tick(
    db: Db, seen: ScheduleRow, next_at: Micros | None, at: Micros | None, run: NewRun | None
) -> Ticked:
    place = {
        "name": seen.name,
        "seen_next_at": seen.next_at,
        "seen_updated_at": seen.updated_at,
        "next_at": next_at,
        "at": at,
    }
    if not db.execute(SQL["move_schedule"], place).rowcount:
        return Ticked(moved=False)
    if run is None:
        return Ticked(moved=True)
    (outcome,) = sqlite_commit.commit(db, [Start(run)])
    assert isinstance(outcome, Started | Refused)
    if isinstance(outcome, Started):
        db.execute(SQL["ran"], (outcome.row.id, seen.name))
    return Ticked(moved=True, run=outcome)
