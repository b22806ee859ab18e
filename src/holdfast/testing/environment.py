"""An app for tests: its store in memory, its worker in this process, its clock in your hands.

    async with Environment([research]) as env:
        run = await env.start(research, "why?")
        await env.advance(timedelta(days=2))
        assert await env.result(run) == "nobody answered in two days"

Durable time (timers, back-off, deadlines) moves only when told to. Steps do their work in real
time, so `settle` has to wait for them; it cannot know what a workflow's body does beside its steps,
and gives plain I/O there only a moment.
"""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, cast

from holdfast.client import Holdfast, Run
from holdfast.clock import FakeClock, Micros, SystemClock, to_micros
from holdfast.engine import rest
from holdfast.engine.schedule import Schedule
from holdfast.engine.workflow import Workflow
from holdfast.errors import RunError
from holdfast.limits import Queue
from holdfast.store.base import Store
from holdfast.testing.kept_store import KeptStore
from holdfast.types import HALTED, RunRow
from holdfast.worker.options import WorkerOptions
from holdfast.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")

LOOK_SECONDS = 0.001
QUIET_LOOKS = 3
"""How often in a row all must look quiet: what the loop was asked to do soon comes in between."""
DOUBTFUL_LOOKS = 50
"""The same while a run may be doing plain I/O."""
ALARMS_MAX = 10_000
"""So often time jumps to the next alarm while a run is awaited."""


class NotSettled(AssertionError):
    """Runs went on for too long, or wait for something that does not come."""


class Environment:
    """An app in memory, `app`, on a clock, `clock`, that only `advance`, `result` and `ended` move.

    worker_options: by default a run that waits leaves memory at once, and is replayed.
    clock: a SystemClock lets time pass by itself instead.
    store: to share one; whoever made it discards it.
    started: the key of every step whose body began, each try anew, in order.
    """

    def __init__(
        self,
        workflows: Iterable[Workflow[Any, Any] | types.ModuleType],
        *,
        schedules: Iterable[Schedule] = (),
        queues: Iterable[Queue] = (),
        worker_options: WorkerOptions | None = None,
        clock: FakeClock | SystemClock | None = None,
        store: KeptStore | None = None,
        patience: timedelta = timedelta(seconds=20),
    ) -> None:
        self.clock = clock if clock is not None else FakeClock()
        self.started: list[str] = []
        self.store = store or KeptStore()
        self._owns_store = store is None
        self._patience_seconds = patience.total_seconds()
        self.on_step = worker_options.on_step if worker_options else None
        options = worker_options or WorkerOptions(memory_wait=timedelta(0))
        self.app = Holdfast(
            cast(Store, self.store),
            workflows=workflows,
            queues=queues,
            schedules=schedules,
            worker_options=replace(options, on_step=self._step_began),
            clock=self.clock,
        )

    # Life

    async def __aenter__(self) -> Environment:
        await self.open()
        return self

    async def open(self) -> None:
        await self.app.open()
        self.worker.settings.checks_arguments = True

    async def __aexit__(self, *exc: object) -> None:
        await self.app.close(grace=timedelta(0))
        if self._owns_store:
            await self.store.discard()

    @property
    def worker(self) -> Worker:
        worker = self.app.worker
        assert worker is not None, "the environment is not open: `async with Environment(...)`"
        return worker

    async def crash(self) -> None:
        """The worker dies on the spot, and another one opens the same store."""
        await self.die()
        await self.open()

    async def die(self) -> None:
        await self.worker.crash()
        await self.app.close()

    def _step_began(self, row: RunRow, key: str, digest: bytes | None) -> None:
        self.started.append(key)
        if self.on_step is not None:
            self.on_step(row, key, digest)

    # Runs

    async def start(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        return await self.app.start(workflow, *args, **kwargs)

    async def result(self, run: Run[R]) -> R:
        """The run's result; time jumps to the next alarm while nothing else can happen."""
        await self.ended(run.id)
        return await run.result()

    async def ended(self, run_id: str) -> RunRow:
        """Lets time pass until the run has ended, or somebody would have to resume it."""
        if isinstance(self.clock, SystemClock):
            return await self._ended_by_itself(run_id)
        waits = True
        for _ in range(ALARMS_MAX):  # a schedule always has a next one
            await self.settle()
            row = await self.app.row(run_id)
            if row.status.ended or row.status in HALTED:
                return row
            if self.clock.advance_to_next():
                continue
            # Time in steps is real. When it is up, the loop has a turn before that is believed: the
            # process may have had none for so long that what was due has not happened yet.
            waited, waits = waits, any(map(rest.real_seconds_left, self.worker.runs.values()))
            if not (waited or waits):
                break
            await asyncio.sleep(LOOK_SECONDS)
        why = await self.app.why(run_id)
        raise NotSettled(f"run {run_id!r} waits for something that does not come: {why}")

    async def _ended_by_itself(self, run_id: str) -> RunRow:
        try:
            await asyncio.wait_for(self.app.result(run_id), self._patience_seconds)
        except RunError:
            pass  # that is an end, too
        except TimeoutError:
            why = await self.app.why(run_id)
            raise NotSettled(f"after {self._patience_seconds:g} s, no end: {why}") from None
        return await self.app.row(run_id)

    # Time

    async def advance(self, by: timedelta) -> None:
        """Moves time on. What falls due on the way happens at its own time, one after the other."""
        clock = self.clock
        assert isinstance(clock, FakeClock), "the system's clock cannot be moved"
        until = clock.now() + to_micros(by)
        await self.settle()
        while (at := clock.next_alarm()) is not None and at <= until:
            await self._move_to(clock, at)
        await self._move_to(clock, until)

    async def _move_to(self, clock: FakeClock, at: Micros) -> None:
        clock.advance(timedelta(microseconds=max(0, at - clock.now())))
        await self.settle()

    async def settle(self) -> None:
        """Returns when every run has ended, halted, or only waits for time or something outside."""
        until = time.monotonic() + self._patience_seconds
        quiet_looks = 0
        while True:
            busy = await self._busy()
            quiet_looks = quiet_looks + 1 if busy is None else 0
            if quiet_looks >= (QUIET_LOOKS if self._surely_waiting() else DOUBTFUL_LOOKS):
                return
            if time.monotonic() > until:
                raise NotSettled(f"after {self._patience_seconds:g} s still busy: {busy}")
            await asyncio.sleep(0 if 0 < quiet_looks < QUIET_LOOKS else LOOK_SECONDS)

    def _surely_waiting(self) -> bool:
        return all(rest.only_waits(run) for run in self.worker.runs.values())

    async def _busy(self) -> str | None:
        """What is still going on, in words."""
        worker, store = self.worker, self.app.store
        for run in worker.runs.values():
            if not rest.is_quiet(run):
                return f"run {run.row.id!r} is under way"
            if run.submissions.strangers:
                rest.consider(run)  # nobody tells when such threads have come to rest
            if run.executing and not rest.only_waits(run):
                return f"run {run.row.id!r} executes {run.executing} steps"
        if mail := await store.mail(
            [(run.row.key, run.inbox.seen) for run in worker.runs.values()]
        ):
            return f"run {mail[0].run} has mail"
        names = [w.name for w in self.app.workflows.values() if not w.is_remote]
        due = (await store.next_due(names, alone=not worker.runs, worker=worker.id)).first
        if due is not None and due <= self.clock.now():
            return "a run or a tick is due"
        if not worker.is_idle:
            return "the worker looks for work"
        return None
