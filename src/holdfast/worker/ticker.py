"""Wakes a worker when there will be something to do; makes the ticks of its schedules, and sees to
the deadlines of runs that nobody executes.

Every worker that serves a schedule's workflow makes its ticks; the store sees to it that one of
them succeeds. Nothing is asked of the store for that but the look that follows each turn anyway: it
tells the next tick and the next deadline together with the next run.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast import codec
from holdfast.clock import Alarm, Micros
from holdfast.engine.schedule import CATCH_UP_MAX, Move, moves, tick_run
from holdfast.errors import DeadlineExceeded, StoreError
from holdfast.store.base import Refused, Ticked
from holdfast.types import ScheduleRow

if TYPE_CHECKING:
    from holdfast.worker.worker import Worker

log = logging.getLogger("holdfast")

TICKS_PER_TURN_MAX = 100
RETRY_MICROS = 60_000_000
RETRY_STORE_MICROS = 1_000_000
NAP_SECONDS = 0.02
NAP_SECONDS_MAX = 2.0
TOO_LATE = codec.encode_error(
    DeadlineExceeded("the run did not end before its deadline"), what="the error"
)


class Ticker:
    def __init__(self, worker: Worker, workflows: Sequence[str]) -> None:
        self._worker = worker
        self._workflows = workflows
        self._alarm: Alarm | None = None
        self._again: asyncio.TimerHandle | None = None
        self._nap_seconds = NAP_SECONDS
        self._next: Micros | None = None  # the next tick, as far as this worker knows
        self._deadline: Micros | None = None  # and the next deadline
        self._failed: dict[str, tuple[Micros, Micros]] = {}  # when they changed; when to try again

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._again is not None:
            self._again.cancel()
            self._again = None

    async def turn(self) -> None:
        """Makes the ticks that are due. A schedule that cannot tick holds nobody else up."""
        worker, now = self._worker, self._worker.clock.now()
        if self._deadline is not None and self._deadline <= now:
            await worker.store.expire(now, TOO_LATE)
        if self._next is None or self._next > now:
            return
        rows = await worker.store.schedules(workflows=self._workflows, due_by=now)
        failed, self._failed = self._failed, {}
        for row in rows:
            when = failed.get(row.name)
            if when is not None and when[0] == row.updated_at and when[1] > now:
                self._failed[row.name] = when
                continue
            try:
                await self._make(row, now)
            except Exception as error:
                is_store = isinstance(error, StoreError)
                again = now + (RETRY_STORE_MICROS if is_store else RETRY_MICROS)
                self._failed[row.name] = (row.updated_at, again)
                log.error("schedule %r cannot tick, trying again: %s", row.name, error)

    async def _make(self, row: ScheduleRow, now: Micros) -> None:
        clock = self._worker.clock
        for move in itertools.islice(moves(row, now), TICKS_PER_TURN_MAX):
            run = tick_run(row, move.tick, clock) if move.tick is not None else None
            seen = row._replace(next_at=move.at)
            ticked = await self._worker.store.tick(seen, move.next_at, at=move.tick, run=run)
            if not ticked.moved:
                return  # somebody else was quicker, or has changed it
            _report(row, move, ticked)

    async def arm(self, found_none: bool) -> None:
        """Asks when there will be something to do, and sets the alarm to it.

        found_none: the worker has just looked for runs, and there was none to claim.
        """
        self.close()
        worker = self._worker
        alone = not worker.runs
        due = await worker.store.next_due(self._workflows, alone=alone, worker=worker.id)
        now = worker.clock.now()
        self._next, self._deadline = due.tick, due.deadline
        if self._failed and due.tick is not None and due.tick <= now:
            due = due._replace(tick=await self._next_besides(now))
        times = [at for at in (due.tick, due.deadline) if at is not None]
        if any(at <= now for at in times):
            worker.wake()  # it has come just now, or there are more than fit into a turn
        self._look_again(found_none and due.run is not None and due.run <= now)
        upcoming = [at for at in (due.run, *times) if at is not None and at > now]
        if upcoming:
            self._alarm = worker.clock.call_at(min(upcoming), worker.wake, worker.hooks.call_later)
        if worker.on_looked is not None:
            worker.on_looked(due.first)

    def _look_again(self, passed_over: bool) -> None:
        """A run that is due and was not found a moment ago has just fallen due, or somebody had a
        lock on it or on its session, who may not ring when it is gone."""
        if not passed_over:
            self._nap_seconds = NAP_SECONDS
            return
        hooks = self._worker.hooks
        self._again = hooks.call_later(self._nap_seconds, self._worker.wake)
        self._nap_seconds = min(2 * self._nap_seconds, NAP_SECONDS_MAX)

    async def _next_besides(self, now: Micros) -> Micros | None:
        """The next tick, where schedules that cannot tick count from when they are tried again."""
        rows = await self._worker.store.schedules(workflows=self._workflows)
        found = [
            max(row.next_at, self._failed.get(row.name, (0, 0))[1])
            for row in rows
            if row.next_at is not None and not row.paused
        ]
        return min(found, default=None)


def _report(row: ScheduleRow, move: Move, ticked: Ticked) -> None:
    if move.too_many:
        log.warning(
            "schedule %r missed more than %d ticks: the older ones are dropped",
            row.name,
            CATCH_UP_MAX,
        )
    if isinstance(ticked.run, Refused):
        log.warning("a tick of schedule %r has no run: %s", row.name, ticked.run.error)
    elif ticked.run is not None and not (ticked.run.created or ticked.run.joined):
        log.warning("the run %r was there before its tick", ticked.run.row.id)
