"""Runs without a journal: the same code, for work that is not worth keeping.

Steps are retried and waits wait, all in memory. Nothing is stored, so nothing survives the process,
and the run can be neither listed nor asked about from outside.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from holdfast import codec
from holdfast.clock import Clock
from holdfast.engine.execution import Execution
from holdfast.engine.host import Limiters, Settings
from holdfast.engine.loop import LoopHooks
from holdfast.engine.workflow import Workflow
from holdfast.errors import BadArguments
from holdfast.store.base import ContinueAs, End, Started
from holdfast.text import fresh_id
from holdfast.types import Entry, Kind, NewRun, RunRow, Status

_FOR_EVER = 2**62
_keys = itertools.count(1)


class Undurable:
    """The Host of one run that is not journaled."""

    def __init__(
        self,
        clock: Clock,
        hooks: LoopHooks,
        sync_executor: Executor,
        lease_holds: Callable[[], bool],
        limiters: Limiters,
    ) -> None:
        self.clock, self.hooks, self.sync_executor = clock, hooks, sync_executor
        self.lease_holds = lease_holds
        self.limiters = limiters
        self.settings = Settings(_FOR_EVER, _FOR_EVER)
        self.ended: asyncio.Future[RunRow] = hooks.loop.create_future()

    def begin(self, workflow: Workflow[Any, Any], payload: bytes, *, generation: int = 1) -> None:
        row = self._row(workflow, payload, generation)
        claim = Entry(1, Kind.CLAIM, "", row.created_at, row.epoch)
        Execution(row, [claim], workflow, self).begin()

    def _row(self, workflow: Workflow[Any, Any], payload: bytes, generation: int) -> RunRow:
        now = self.clock.now()
        return RunRow(
            key=-next(_keys),
            id=workflow.options.id or fresh_id(),
            workflow=workflow.name,
            version="",
            queue=workflow.options.queue,
            priority=0,
            status=Status.RUNNING,
            epoch=1,
            owner=None,
            incarnation=fresh_id(),
            generation=generation,
            input=payload,
            digest=codec.digest(payload),
            output=None,
            created_at=now,
            updated_at=now,
            ended_at=None,
            ready_at=None,
            deadline_at=None,
            session=None,
            while_waiting="hold",
            parent=None,
            parent_step=None,
            options=None,
            strikes=0,
            reason=None,
        )

    # What the run asks of its host

    def mark(self, run: Execution) -> None:
        if not run.dirty:
            run.dirty = True
            self.hooks.soon(self._forget, run)

    def _forget(self, run: Execution) -> None:
        """Takes the run's entries as the committer would, and drops them."""
        run.dirty = False
        append, _ = run.operation(_FOR_EVER, _FOR_EVER)
        run.committed(len(append.entries))
        if append.then is not None:
            run.settled = append.then
            run.evict()

    def left(self, run: Execution) -> None:
        if self.ended.done():
            return
        match run.settled:
            case ContinueAs(input=payload):
                generation = run.row.generation + 1
                self.begin(run.workflow, payload, generation=generation)
            case End(status=status, output=output):
                run.row.status, run.row.output = status, output
                self.ended.set_result(run.row)
            case halted:
                run.row.status = Status.PARKED
                run.row.reason = getattr(halted, "reason", "its worker was closed")
                self.ended.set_result(run.row)

    def rested(self, run: Execution) -> None:
        return

    async def start(self, new: NewRun) -> Started:
        raise BadArguments("a run with durability='none' cannot start other runs")
