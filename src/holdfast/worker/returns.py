"""Hands runs back that this worker holds and does not execute, so that somebody goes on with them.

Nobody else would: their owner is alive. So it is tried until the store takes it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.errors import StoreError
from holdfast.types import RunKey, RunRow, WorkerId

if TYPE_CHECKING:
    from holdfast.worker.worker import Worker

log = logging.getLogger("holdfast")

RETRY_SECONDS_MAX = 2.0
PAUSE_SECONDS = 0.1
STRAY_SECONDS = 1.0
"""A run that is ours and not here for so long is not merely on its way."""


class Returns:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._tasks: set[asyncio.Task[None]] = set()
        self._strays: dict[tuple[RunKey, int], float] = {}

    async def look(self) -> None:
        """Finds runs that the store believes this worker executes, and it does not: a failover may
        have lost their end, a lost answer their claim."""
        worker, now = self._worker, time.monotonic()
        here = {(run.row.key, run.row.epoch) for run in worker.runs.values()}
        owned = await worker.store.owned(worker.id)
        since = {held: self._strays.get(held, now) for held in owned if held not in here}
        stray = [held for held, at in since.items() if now - at >= STRAY_SECONDS]
        self._strays = {held: at for held, at in since.items() if held not in stray}
        if stray:
            log.warning("%d runs are ours and not here: they are handed back", len(stray))
            await worker.store.release(worker.id, stray, worker.clock.now())

    def close(self) -> None:
        """Whatever is left now goes back when the worker leaves the store."""
        for task in self._tasks:
            task.cancel()

    @property
    def is_idle(self) -> bool:
        return not self._tasks

    def give_later(self, rows: Iterable[RunRow]) -> None:
        """After a pause: they would be claimed again at once, and the store is in trouble."""
        self.give(rows, PAUSE_SECONDS)

    def give(self, rows: Iterable[RunRow], pause_seconds: float = 0.0) -> None:
        held = [(row.key, row.epoch) for row in rows]
        if held:
            # Not in the context of a run that is on its way out, which would take this with it.
            make = self._worker.hooks.loop.create_task
            work = self._release(self._worker.id, held, pause_seconds)
            task = contextvars.Context().run(lambda: make(work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _release(
        self, owner: WorkerId, held: list[tuple[RunKey, int]], pause_seconds: float
    ) -> None:
        store, clock = self._worker.store, self._worker.clock
        while True:
            if pause_seconds:
                await asyncio.sleep(pause_seconds)
            try:
                await store.release(owner, held, clock.now())
                return
            except StoreError as error:
                log.warning("runs cannot be handed back, trying again: %s", error)
            except Exception:
                log.exception("runs cannot be handed back, trying again")
            pause_seconds = min(2 * pause_seconds or PAUSE_SECONDS, RETRY_SECONDS_MAX)
