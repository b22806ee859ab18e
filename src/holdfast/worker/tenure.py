"""A worker's registration: taken, kept by its lease, lost, and taken anew under another id.

A worker that was taken for dead drops all its runs, which others have by now, and begins again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
import uuid
from typing import TYPE_CHECKING

from holdfast.errors import StoreError
from holdfast.types import WorkerId, WorkerRow
from holdfast.worker.lease import Lease
from holdfast.worker.timekeeper import Timekeeper

if TYPE_CHECKING:
    from holdfast.worker.worker import Worker

log = logging.getLogger("holdfast")

RETRY_SECONDS = 1.0


def new_id() -> WorkerId:
    return f"w-{uuid.uuid4().hex[:12]}"


class Tenure:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._lease: Lease | None = None
        self.timekeeper = Timekeeper(worker.store, worker.clock)
        self.beginning: asyncio.Task[None] | None = None  # anew

    def holds(self) -> bool:
        """Whether something may be started now."""
        return self._lease is not None and self._lease.holds()

    async def begin(self) -> None:
        worker, options = self._worker, self._worker.options
        await self.timekeeper.open()
        seconds = options.lease.total_seconds()
        here = socket.gethostname()
        row = WorkerRow(worker.id, "", os.getpid(), "", worker.clock.now(), seconds, note=here)
        since = time.monotonic()
        try:
            keeper = await worker.store.register(row)
        except BaseException:
            self.timekeeper.close()
            raise
        hang = options.hang.total_seconds()
        self._lease = Lease(keeper, since, seconds, hang, self.lost, self._restored)
        self._lease.start()

    def end(self) -> None:
        self.timekeeper.close()
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.stop()

    def lost(self, why: str) -> None:
        """Its runs are others' by now, if they are not yet dropped and registered anew."""
        worker = self._worker
        if self.beginning is not None and not self.beginning.done():
            return
        log.error(
            "worker %s lost its lease (%s): it drops %d runs", worker.id, why, len(worker.runs)
        )
        worker.id = new_id()  # what is still claimed under the old one comes too late
        for run in list(worker.runs.values()):
            run.evict()
        if not worker.is_leaving:
            self.beginning = asyncio.get_running_loop().create_task(self._begin_again())

    async def _begin_again(self) -> None:
        self.end()
        while not self._worker.is_leaving:
            self._worker.id = new_id()
            try:
                await self.begin()
            except StoreError as error:
                log.warning("the worker cannot register, trying again: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._worker.wake()
                return

    def _restored(self) -> None:
        for run in self._worker.runs.values():
            run.open_gate()
        self._worker.wake()
