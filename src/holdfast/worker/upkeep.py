"""Deletes runs that ended long ago, and sessions if so told, a few at a time, so that a store does
not grow for ever.

Every worker does it: the store sees to it that they do not wait for one another.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from typing import TYPE_CHECKING

from holdfast.clock import to_micros
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from holdfast.worker.worker import Worker

log = logging.getLogger("holdfast")

FIRST_SECONDS = 20.0
EVERY_SECONDS = 300.0
BATCH_RUNS = 200
BATCH_SESSIONS = 20
BREATH_SECONDS = 0.05
"""Between two batches: others want to write, too."""


class Upkeep:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        make = asyncio.get_running_loop().create_task
        self._task = contextvars.Context().run(lambda: make(self._keep(), name="holdfast-upkeep"))

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _keep(self) -> None:
        nap = FIRST_SECONDS
        while True:
            await asyncio.sleep(nap * random.uniform(0.75, 1.25))
            nap = EVERY_SECONDS
            try:
                if deleted := await self.prune():
                    log.info("%d runs that ended long ago were deleted", deleted)
                if deleted := await self.prune_sessions():
                    log.info("%d sessions that were not used for long were deleted", deleted)
            except StoreError as error:
                log.warning("old data cannot be deleted, trying again later: %s", error)

    async def prune(self) -> int:
        """Deletes all that is due; says how many runs."""
        retention = self._worker.options.retention
        deleted = 0
        while True:
            now = self._worker.clock.now()
            before = now - to_micros(retention.runs) if retention.runs is not None else 0
            until = now + to_micros(retention.ids)
            count = await self._worker.store.prune(
                before, BATCH_RUNS, now=now, keep_ids_until=until
            )
            deleted += count
            if count < BATCH_RUNS:
                return deleted
            await asyncio.sleep(BREATH_SECONDS)

    async def prune_sessions(self) -> int:
        """Deletes what sessions hold that are idle for long; says how many."""
        idle = self._worker.options.retention.sessions
        deleted = 0
        while idle is not None:
            before = self._worker.clock.now() - to_micros(idle)
            count = await self._worker.store.prune_sessions(before, BATCH_SESSIONS)
            deleted += count
            if count < BATCH_SESSIONS:
                break
            await asyncio.sleep(BREATH_SECONDS)
        return deleted
