"""Schedules in PostgreSQL: each verb is one call, sent again under its request id if need be."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.clock import Micros
from holdfast.store.base import Due, Refused, Start, Started, Ticked
from holdfast.store.postgres_commit import Committing
from holdfast.store.postgres_link import Link
from holdfast.store.postgres_values import run_values
from holdfast.store.rows import schedule
from holdfast.types import NewRun, ScheduleRow, WorkerId

_ANY_STRIKES = (1 << 31) - 1
_SUSPECT_STRIKES = 2


class Schedules:
    """The store's verbs for them."""

    _link: Link
    _sql: dict[str, str]
    _committing: Committing

    async def next_due(
        self, workflows: Sequence[str], *, alone: bool = True, worker: WorkerId | None = None
    ) -> Due:
        names = ("next_ready", "next_tick", "next_deadline")
        looks = ", ".join(f"({self._sql[name]})" for name in names)
        strikes = _ANY_STRIKES if alone else _SUSPECT_STRIKES
        (row,) = await self._link.read(f"SELECT {looks}", list(workflows), strikes, worker)
        return Due(*row)

    async def schedules(
        self, *, workflows: Sequence[str] | None = None, due_by: Micros | None = None
    ) -> list[ScheduleRow]:
        named = None if workflows is None else list(workflows)
        rows = await self._link.read(self._sql["schedules"], named, due_by)
        return [schedule(row) for row in rows]

    async def put_schedule(self, schedule: ScheduleRow, *, seen: ScheduleRow | None) -> bool:
        (done,) = await self._link.write(
            "put_schedule",
            schedule.name,
            schedule.workflow,
            schedule.input,
            schedule.digest,
            schedule.options,
            schedule.cron,
            schedule.zone,
            schedule.catch_up,
            schedule.paused,
            schedule.next_at,
            schedule.updated_at,
            seen is None,
            seen.next_at if seen is not None else None,
            seen.updated_at if seen is not None else None,
        )
        return done == 1

    async def delete_schedule(self, name: str) -> bool:
        (deleted,) = await self._link.write("delete_schedule", name)
        return deleted == 1

    async def tick(
        self,
        seen: ScheduleRow,
        next_at: Micros | None,
        *,
        at: Micros | None = None,
        run: NewRun | None = None,
    ) -> Ticked:
        place = (seen.name, seen.next_at, seen.updated_at, next_at, at)
        if run is None:
            (moved,) = await self._link.write("drop_ticks", *place)
            return Ticked(moved=moved == 1)
        values = (*place, *run_values(run), run.session, run.on_busy)
        moved, code, key = await self._link.write("tick", *values)
        if not moved:
            return Ticked(moved=False)
        outcome = await self._committing.started(Start(run), code, key)
        assert isinstance(outcome, Started | Refused)
        return Ticked(moved=True, run=outcome)
