"""Notices that other workers died, and frees their runs.

Deaths on this host are told by the operating system the moment they happen; silence (a stopped
process, a lost machine) by the lease. Several workers may reap the same dead one: the store sees to
it that it counts once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from holdfast.errors import StoreError
from holdfast.types import WorkerId, WorkerRow

if TYPE_CHECKING:
    from holdfast.worker.worker import Worker

log = logging.getLogger("holdfast")

RETRY_SECONDS = 0.5
Deal = Callable[[WorkerRow], Coroutine[Any, Any, None]]


class Reaper:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._watched: dict[WorkerId, Callable[[], None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def close(self) -> None:
        self._closed = True
        for stop in self._watched.values():
            stop()
        self._watched.clear()

    async def look(self) -> None:
        """Takes stock of the other workers: reaps the dead and overdue, watches the living."""
        rows = await self._worker.store.workers()
        present = {row.id for row in rows}
        for id in [id for id in self._watched if id not in present]:
            self._watched.pop(id)()
        for row in rows:
            if row.id != self._worker.id:
                await self._try(self._look_at, row)

    async def _look_at(self, row: WorkerRow) -> None:
        silent = row.lease_left_seconds <= 0
        if row.id in self._watched and not silent:
            return
        if silent or await self._worker.store.is_dead(row):
            await self._reap(row)
        else:
            self._watch(row)

    def _watch(self, row: WorkerRow) -> None:
        self._watched[row.id] = self._worker.store.watch(row, lambda: self._died(row))

    def _died(self, row: WorkerRow) -> None:
        stop = self._watched.pop(row.id, None)
        if stop is not None:
            stop()
        if not self._closed:
            task = asyncio.get_running_loop().create_task(self._try(self._reap, row))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _try(self, deal_with: Deal, row: WorkerRow) -> None:
        """One worker that cannot be dealt with keeps nobody from work; it is looked at again."""
        try:
            await deal_with(row)
        except StoreError as error:
            log.warning("worker %s cannot be dealt with, trying again: %s", row.id, error)
            self._worker.look_soon(RETRY_SECONDS)

    async def _reap(self, row: WorkerRow) -> None:
        reaped = await self._worker.store.reap(row.id, self._worker.clock.now())
        if reaped is None:
            # Somebody else did, or it lives after all and is to be watched again.
            self._worker.look_soon(RETRY_SECONDS)
            return
        log.warning(
            "worker %s (pid %d) is gone: %d runs go on elsewhere", row.id, row.pid, len(reaped.runs)
        )
        for id in reaped.quarantined:
            log.error("run %r kept killing its worker and is quarantined", id)
        self._worker.wake()
