"""Notices that other workers died, and frees their runs.

Deaths on this host are told by the operating system the moment they happen; silence (a stopped
process, a lost machine) by the lease. Several workers may reap the same dead one: the store sees to
it that it counts once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.errors import StoreError
from holdfast.types import WorkerId, WorkerRow

if TYPE_CHECKING:
    from holdfast.worker.worker import Worker

log = logging.getLogger("holdfast")


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
        try:
            rows = await self._worker.store.workers()
        except StoreError as error:
            log.warning("the other workers cannot be seen: %s", error)
            return
        present = {row.id for row in rows}
        for id in [id for id in self._watched if id not in present]:
            self._watched.pop(id)()
        for row in rows:
            if row.id == self._worker.id:
                continue
            if row.lease_left_seconds <= 0:
                await self._reap(row)
            elif row.id in self._watched:
                continue
            elif await self._worker.store.is_dead(row):
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
            task = asyncio.get_running_loop().create_task(self._reap(row))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _reap(self, row: WorkerRow) -> None:
        store, now = self._worker.store, self._worker.clock.now()
        try:
            reaped = await store.reap(row.id, now, dead=await store.is_dead(row))
        except StoreError as error:
            log.warning("the runs of worker %s cannot be freed, trying again: %s", row.id, error)
            return
        if reaped is None:
            return
        log.warning(
            "worker %s (pid %d) is gone: %d runs go on elsewhere", row.id, row.pid, len(reaped.runs)
        )
        for id in reaped.quarantined:
            log.error("run %r kept killing its worker and is quarantined", id)
        self._worker.wake()
