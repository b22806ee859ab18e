"""Group commit: whatever the runs of a process have to write goes down in one transaction.

A run has at most one batch under way. A batch that the store could not take is sent again as it is,
until it goes through or the worker's lease is gone: nothing that was sequenced is dropped while the
run is ours.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from holdfast.engine import trouble
from holdfast.errors import LeaseLost, StoreError, StoreMoved
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
    Started,
    Store,
    Suspend,
)
from holdfast.text import fresh_id

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution
    from holdfast.types import RunRow

log = logging.getLogger("holdfast")

BATCH_ENTRIES_MAX = 256
BATCH_STARTS_MAX = 512
BATCH_BYTES_MAX = 16 << 20
"""A batch ends with the operation that reaches it: no store takes any amount in one statement."""
RETRY_SECONDS_MAX = 1.0
HELP_FROM_RUNS = 64


class Committer:
    """Whoever starts a run may be gone by the time it is accepted: what was claimed with it is told
    to `on_claimed` all the same."""

    def __init__(
        self,
        store: Store,
        need_mail: Callable[[Execution], None],
        on_claimed: Callable[[RunRow], None] | None = None,
    ) -> None:
        self._on_claimed = on_claimed
        self._store = store
        self._need_mail = need_mail
        self._dirty: list[Execution] = []
        self._starts: list[tuple[Start, asyncio.Future[Started]]] = []
        self._wake: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._helps = store.commits_at_once > 1
        self._help_wanted = asyncio.Event()
        self._helping = False
        self._stopping = False

    def open(self) -> None:
        self._begin(self._work())
        if self._helps:
            self._begin(self._help())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        make = asyncio.get_running_loop().create_task
        task = contextvars.Context().run(lambda: make(work, name="holdfast-committer"))
        self._tasks.append(task)

    async def close(self) -> None:
        """Writes what is queued, then stops."""
        self._stopping = True
        self._help_wanted.set()
        self._ring()
        for task in self._tasks:
            await task

    def abort(self) -> None:
        """Stops at once; what is queued is lost to this process."""
        for task in self._tasks:
            task.cancel()

    def mark(self, run: Execution) -> None:
        if not run.dirty:
            run.dirty = True
            self._dirty.append(run)
            if self._helps and len(self._dirty) >= HELP_FROM_RUNS:
                self._help_wanted.set()
            self._ring()

    async def start(self, operation: Start) -> Started:
        future: asyncio.Future[Started] = asyncio.get_running_loop().create_future()
        self._starts.append((operation, future))
        self._ring()
        return await future

    @property
    def is_idle(self) -> bool:
        """Is everything written?"""
        return self._wake is not None and not self._wake.done() and not self._helping

    def _ring(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._dirty and not self._starts:
                if self._stopping:
                    return
                self._wake = loop.create_future()
                await self._wake
                self._wake = None
            await self._commit_some()
            if self._dirty:
                # A cheap commit never waits for anything: everybody else gets a turn here.
                await asyncio.sleep(0)

    async def _help(self) -> None:
        """A second batch beside the first, of other runs: while the store writes the one, this
        process makes the other. Few runs are better off in the next first one."""
        while not self._stopping:
            if self._wake is not None or len(self._dirty) < HELP_FROM_RUNS:
                self._help_wanted.clear()
                await self._help_wanted.wait()
                continue
            self._helping = True
            await self._commit_some()
            self._helping = False

    async def _commit_some(self) -> None:
        size = 0
        starts: list[tuple[Start, asyncio.Future[Started]]] = []
        for start in self._starts[:BATCH_STARTS_MAX]:
            starts.append(start)
            size += len(start[0].run.input)
            if size >= BATCH_BYTES_MAX:
                break
        del self._starts[: len(starts)]
        appends: list[Append] = []
        room = BATCH_ENTRIES_MAX
        for run in self._dirty if size < BATCH_BYTES_MAX else ():
            append, carries = run.operation(room, BATCH_BYTES_MAX - size)
            appends.append(append)
            room -= len(append.entries)
            size += carries
            if append.then is not None or append.session:
                size += _size_beside(append)
            if room <= 0 or size >= BATCH_BYTES_MAX:
                break
        runs, self._dirty = self._dirty[: len(appends)], self._dirty[len(appends) :]
        if not starts and not appends:
            return
        outcomes = await self._through([*(start for start, _ in starts), *appends])
        for (_, future), outcome in zip(starts, outcomes, strict=False):
            self._started(future, outcome)
        for run, append, outcome in zip(runs, appends, outcomes[len(starts) :], strict=True):
            try:
                self._appended(run, append, outcome)
            except Exception:
                # One run's trouble must not be everybody's: without a committer nothing goes on.
                log.exception("run %r is dropped here", run.row.id)
                run.evict()

    async def _through(self, operations: list[Operation]) -> list[Outcome]:
        request = fresh_id()
        delay = 0.02
        while True:
            try:
                return await self._store.commit(operations, request=request)
            except StoreMoved as error:
                return [Refused(error) for _ in operations]  # here it will never work again
            except StoreError as error:
                log.warning("the store does not take entries, trying again: %s", error)
            except Exception:
                log.exception("a commit failed, trying again")
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_SECONDS_MAX)

    def _appended(self, run: Execution, append: Append, outcome: Outcome) -> None:
        run.dirty = False
        if isinstance(outcome, Refused):
            self._refused(run, append, outcome.error)
            return
        assert isinstance(outcome, Appended)
        run.committed(len(append.entries))
        if append.then is None:
            if run.wants_commit:
                self.mark(run)
        elif isinstance(append.then, Suspend) and not outcome.suspended:
            self._stays(run, append.then)
        else:
            run.settled = append.then
            run.evict()

    def _refused(self, run: Execution, append: Append, error: Exception) -> None:
        if append.entries and not isinstance(error, LeaseLost | StoreMoved):
            trouble.unwritable(run, error)
            return
        # It is handed back all the same. That changes nothing if another worker has it; if the
        # store lost entries in a failover, nobody has it.
        log.warning("run %r is dropped here: %s", run.row.id, error)
        run.evict()

    def _stays(self, run: Execution, refused: Suspend) -> None:
        """Mail had come before the run could suspend."""
        if run.suspending:
            self._need_mail(run)
            run.stay(refused)
        elif not trouble.heard(run, refused):
            self._need_mail(run)
        if run.wants_commit:
            self.mark(run)  # also if mail reached a step of it while this was under way

    def _started(self, future: asyncio.Future[Started], outcome: Outcome) -> None:
        if isinstance(outcome, Started) and outcome.claimed and self._on_claimed is not None:
            try:
                self._on_claimed(outcome.row)
            except Exception:
                log.exception("run %r is dropped here", outcome.row.id)
        if future.done():
            return
        if isinstance(outcome, Refused):
            future.set_exception(outcome.error)
        else:
            assert isinstance(outcome, Started)
            future.set_result(outcome)


def _size_beside(append: Append) -> int:
    """How much an append carries beside its entries, about."""
    size = 0
    if isinstance(append.then, End):
        size += len(append.then.output or b"")
    elif isinstance(append.then, ContinueAs):
        size += len(append.then.input)
    for write in append.session:
        size += len((write.payload if isinstance(write, MessageWrite) else write.value) or b"")
    return size
