"""A worker: claims runs that can go on and executes them, as many at once as it has room for.

It never polls while nothing happens, but for a slow jittered look behind the notifications. Whose
turn it is, the store decides.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from holdfast.clock import Clock, Micros, to_micros
from holdfast.engine import held, host
from holdfast.engine.commit import Committer
from holdfast.engine.execution import Execution
from holdfast.engine.host import Settings
from holdfast.engine.loop import LoopHooks, hook, unhook
from holdfast.engine.timer import BodyTimers
from holdfast.engine.workflow import Workflow
from holdfast.errors import LeaseLost, StoreError
from holdfast.store.base import Claimed, Start, Started, Store
from holdfast.types import Entry, NewRun, RunId, RunKey, RunRow
from holdfast.worker.limiters import StoreLimiters
from holdfast.worker.options import WorkerOptions
from holdfast.worker.reaper import Reaper
from holdfast.worker.resumed import first_entry, say_resumed
from holdfast.worker.returns import Returns
from holdfast.worker.settled import has_settled
from holdfast.worker.tenure import Tenure, new_id
from holdfast.worker.ticker import Ticker
from holdfast.worker.upkeep import Upkeep

log = logging.getLogger("holdfast")

LOOK_SECONDS = 0.05
FLUSH_SECONDS = 3.0
CLAIM_MAX = 256
RETRY_SECONDS_MAX = 1.0


class Worker:
    """The engine's Host."""

    def __init__(
        self,
        store: Store,
        workflows: Mapping[str, Workflow[Any, Any]],
        clock: Clock,
        options: WorkerOptions,
    ) -> None:
        self.store = store
        self.clock = clock
        self.options = options
        self.id = new_id()
        self.runs: dict[RunKey, Execution] = {}
        self._ids: set[RunId] = set()  # of the same
        self._leaving: set[Execution] = set()  # claimed anew before they heard that they sleep
        self.settings = Settings(
            to_micros(options.memory_wait), to_micros(options.unsure_wait), options.on_step
        )
        self.sync_executor = ThreadPoolExecutor(options.threads, thread_name_prefix="holdfast-run")
        self.hooks: LoopHooks
        self.committer = Committer(store, self._need_mail, self._started_here)
        self._workflows = workflows
        self._names = [w.name for w in workflows.values() if not w.is_remote]
        self._bell = asyncio.Event()
        self._left = asyncio.Event()
        self._mail_wanted = True
        self._look_around = True
        self._look_soon: asyncio.TimerHandle | None = None
        self._draining = False
        self._crashed = False
        self._napping = False
        self._reading: dict[RunKey, asyncio.Task[None]] = {}  # their sessions, before they begin
        self._opening: set[RunKey] = set()  # claimed, and their journals being read
        self._task: asyncio.Task[None] | None = None
        self._returns = Returns(self)
        self.limiters = StoreLimiters(store, clock)
        self._unlisten: Callable[[], None] = lambda: None
        self._reaper = Reaper(self)
        self._tenure = Tenure(self)
        self.upkeep = Upkeep(self)
        self._ticker = Ticker(self, self._names)
        self.on_settled: Callable[[RunRow], None] | None = None
        # Told after each look for work when the next run or tick is due.
        self.on_looked: Callable[[Micros | None], None] | None = None

    # Life

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self.hooks = hook(loop, BodyTimers())
        host.opened(self)
        self.committer.open()
        try:
            await self._tenure.begin()
        except BaseException:
            self.committer.abort()
            self._end()
            raise
        self._unlisten = self.store.listen(self._rung, ends=False)
        self._task = contextvars.Context().run(
            lambda: loop.create_task(self._serve(), name="holdfast-worker")
        )
        self.upkeep.open()

    async def close(self, grace: timedelta | None = None) -> None:
        """Hands every run back, once its running steps have ended or the grace time is over."""
        if self._crashed:
            return
        self._draining = True
        self._bell.set()
        try:
            await self._leave(grace)
        finally:
            # Also if it is cancelled, or the store is out of reach: nothing goes on behind this.
            self.committer.abort()
            for run in list(self.runs.values()):
                run.evict()
            self._end()

    async def _leave(self, grace: timedelta | None) -> None:
        left = (grace if grace is not None else self.options.grace).total_seconds()
        until = time.monotonic() + left
        while any(run.executing > 0 or not run.journal.durable for run in self.runs.values()):
            try:
                self._left.clear()
                await asyncio.wait_for(self._left.wait(), max(0.0, until - time.monotonic()))
            except TimeoutError:
                break
        await self._stop_serving()
        owned = [(run.row.key, run.row.epoch) for run in self.runs.values() if not run.closed]
        for run in [run for run in self.runs.values() if not run.closed]:
            run.evict()
        try:
            await asyncio.wait_for(self.committer.close(), FLUSH_SECONDS)
        except TimeoutError:
            log.warning("runs are handed back without their last entries: the store takes none")
        if owned:
            await self.store.release(self.id, owned, self.clock.now())
        self._tenure.end()
        await self.store.deregister(self.id)
        await held.all_closed()

    async def crash(self) -> None:
        """Plays dead, for tests: nothing more is written, nothing is handed back."""
        self._draining = self._crashed = True
        self.committer.abort()
        for run in [*self.runs.values(), *self._leaving]:
            run.evict()
        await self._stop_serving()
        self._end()

    async def _stop_serving(self) -> None:
        if tasks := self._stop():
            await asyncio.wait(tasks)

    def _stop(self) -> list[asyncio.Task[None]]:
        tasks = [t for t in (self._task, self._tenure.beginning, *self._reading.values()) if t]
        for task in tasks:
            task.cancel()
        self.upkeep.close()
        self._reaper.close()
        self._returns.close()
        self.limiters.close()
        self._unlisten()
        self._ticker.close()
        if self._look_soon is not None:
            self._look_soon.cancel()
        return tasks

    def _end(self) -> None:
        self._stop()
        self._tenure.end()
        host.closed(self)
        unhook(self.hooks)
        self.sync_executor.shutdown(wait=False)

    def executes(self, run: RunId) -> bool:
        return run in self._ids

    # What runs ask of their host

    def mark(self, run: Execution) -> None:
        self.committer.mark(run)

    def lease_holds(self) -> bool:
        return not self._draining and self._tenure.holds()

    def left(self, run: Execution) -> None:
        if run.settled is None and not run.lost and not self._draining:
            self._returns.give([run.row])  # it left without an end
        self._leaving.discard(run)
        # A run that suspended may have been claimed again before this was told: that one stays.
        if self.runs.get(run.row.key) is run:
            del self.runs[run.row.key]
            self._ids.discard(run.row.id)
            if self.on_settled is not None and has_settled(run):
                self.on_settled(run.row)
            self._left.set()
            self._bell.set()

    def rested(self, run: Execution) -> None:
        if self._draining:
            self._left.set()

    def start_undurable(
        self, workflow: Workflow[Any, Any], payload: bytes
    ) -> asyncio.Future[RunRow]:
        """Executes a run without a journal; gives its row once it has ended."""
        from holdfast.worker.undurable import Undurable  # hardly anybody wants that

        run = Undurable(self.clock, self.hooks, self.sync_executor, self.lease_holds, self.limiters)
        run.begin(workflow, payload)
        return run.ended

    async def start(self, new: NewRun) -> Started:
        """Accepts a run, and executes it right here if there is room."""
        here = self._room() > 0 and new.workflow in self._names and not self._draining
        due = new.ready_at <= self.clock.now()
        started = await self.committer.start(Start(new, self.id if here and due else None))
        if started.created and not started.claimed:
            self._bell.set()
        return started

    # Serving

    def wake(self) -> None:
        """There may be something to claim."""
        self._bell.set()

    @property
    def is_leaving(self) -> bool:
        return self._draining

    @property
    def is_idle(self) -> bool:
        """Is it waiting to be told of something, with all written? Its runs may be busy."""
        idle = self._napping and not self._bell.is_set()
        return idle and self.committer.is_idle and self._returns.is_idle

    def _room(self) -> int:
        if len(self.runs) == 1 and next(iter(self.runs.values())).is_suspect:
            return 0  # it restarts alone, until it has made progress
        return self.options.concurrency - len(self.runs) - len(self._opening)

    def _rung(self) -> None:
        self._mail_wanted = True
        self._bell.set()
        self.look_soon()  # perhaps a new worker rang: it is to be watched, or nobody sees it die

    def look_soon(self, seconds: float = LOOK_SECONDS) -> None:
        """The other workers are to be looked at."""
        if self._look_soon is None and not self._draining:
            self._look_soon = self.hooks.call_later(seconds, self._look_now)

    def _look_now(self) -> None:
        self._look_soon = None
        self._look_around = True
        self._bell.set()

    def _need_mail(self, run: Execution) -> None:
        self._mail_wanted = True
        self._bell.set()

    async def _serve(self) -> None:
        while True:
            self._bell.clear()
            nap = self.store.poll_seconds * (0.75 + random.random() / 2)
            try:
                await self._turn()
            except StoreError as error:
                log.warning("the worker cannot reach its store, trying again: %s", error)
                nap = min(nap / 10, RETRY_SECONDS_MAX)
            except Exception:
                log.exception("the worker failed to look for work, trying again")
                nap = min(nap / 10, RETRY_SECONDS_MAX)
            poll = self.hooks.call_later(nap, self._poll)
            self._napping = True
            await self._bell.wait()
            self._napping = False
            poll.cancel()

    def _poll(self) -> None:
        """The safety net: what no notification told is found out here."""
        self._mail_wanted = self._look_around = True
        self._bell.set()

    async def _turn(self) -> None:
        if self._look_around:
            self._look_around = False  # first: who asks for it from now on gets another look
            await self._reaper.look()
            await self._returns.look()
        if self._mail_wanted and self.runs:
            self._mail_wanted = False
            here = (run for key, run in self.runs.items() if key not in self._reading)
            await self._fetch_mail([(run.row.key, run.inbox.seen) for run in here])
        if not self._draining:
            await self._ticker.turn()
        while asked := self._may_claim():
            claimed = await self._claim(min(self._room(), CLAIM_MAX))
            if not claimed:
                break
            await self._open_runs(claimed)
        await self._ticker.arm(asked)

    def _may_claim(self) -> bool:
        return not self._draining and self._room() > 0 and self.lease_holds()

    async def _claim(self, limit: int) -> list[Claimed]:
        claimer, now = self.id, self.clock.now()
        try:
            return await self.store.claim(claimer, self._names, now, limit, alone=not self.runs)
        except LeaseLost:
            if claimer == self.id:  # else that is known already
                self._tenure.lost("it is not registered any more")
            return []

    async def _open_runs(self, claimed: list[Claimed]) -> None:
        unopened = {c.row.key: c for c in claimed}
        self._opening.update(unopened)
        try:
            for row, seq in ((c.row, c.seq) for c in claimed):
                entries = [first_entry(row)] if seq == 1 else await self.store.journal(row.key)
                self._execute(row, entries)
                del unopened[row.key]
            if self._reading:
                await asyncio.wait(self._reading.values())
        except Exception as error:
            # The first is the one that failed. If the store did not, it would only fail again.
            rows = [c.row for c in unopened.values()]
            self._returns.give_later(rows if isinstance(error, StoreError) else rows[1:])
            raise
        finally:
            self._opening.clear()
        await self._fetch_mail([(c.row.key, 0) for c in claimed])

    def _started_here(self, row: RunRow) -> None:
        self._execute(row, [first_entry(row)])

    def _execute(self, row: RunRow, entries: list[Entry]) -> None:
        if self._draining:
            return  # it was claimed a moment too late; leaving the store hands it back
        if row.owner != self.id:
            return  # claimed before our lease was lost, and heard of only now: it is others' by now
        run = Execution(row, entries, self._workflows[row.workflow], self)
        if (before := self.runs.get(row.key)) is not None:
            self._leaving.add(before)
        self.runs[row.key] = run
        self._ids.add(row.id)
        if run.session is None:
            self._begin(run, entries)
        else:
            # By a task of its own: whoever started the run may be cancelled meanwhile.
            make, reading = self.hooks.loop.create_task, self._begin_in_session(run, entries)
            self._reading[row.key] = contextvars.Context().run(lambda: make(reading))

    async def _begin_in_session(self, run: Execution, entries: list[Entry]) -> None:
        assert run.session is not None
        try:
            await run.session.read(self.store)
        except StoreError as error:
            log.warning("run %r cannot be opened, trying again: %s", run.row.id, error)
            run.lost = True
            run.evict()
            self._returns.give_later([run.row])
        finally:
            del self._reading[run.row.key]
        if not run.closed:  # meanwhile it may have been handed back or lost
            self._begin(run, entries)
            self._need_mail(run)

    def _begin(self, run: Execution, entries: list[Entry]) -> None:
        if run.replayed_steps and not any(e.key == self.id for e in entries[:-1]):
            say_resumed(run)  # and was not merely asleep
        try:
            run.begin()
        except Exception as error:
            run.fail(error)

    async def _fetch_mail(self, wanted: list[tuple[RunKey, int]]) -> None:
        """Gives these runs their mail that came after the id with each."""
        try:
            for mail in await self.store.mail(wanted):
                if (run := self.runs.get(mail.run)) is None:
                    continue
                if run.session is not None and run.inbox.is_news_of_a_child(mail):
                    await run.session.read(self.store)  # the child may have written to it
                run.inbox.receive(mail)
        except BaseException:
            self._mail_wanted = True  # or what was not handed out would wait for the next ring
            raise
