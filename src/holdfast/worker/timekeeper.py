"""Sets a worker's clock by the store's, so that workers whose machines disagree agree on the time.

Rates, schedules, timers and deadlines are times that one worker writes and another reads. A
difference that hardly matters is left alone, so that time does not jump to and fro; whoever was
given a clock of another kind keeps it. What it does not guarantee: between two looks, a machine's
clock may be set.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from typing import TYPE_CHECKING

from holdfast.clock import Micros, SystemClock
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from holdfast.worker.worker import Worker

log = logging.getLogger("holdfast")

EVERY_SECONDS = 30.0
TRIES = 3
AGREES: Micros = 250_000
QUICK: Micros = 500_000
"""Whatever took longer to be answered says too little."""


class Timekeeper:
    def __init__(self, worker: Worker) -> None:
        self._store = worker.store
        self._clock = worker.clock
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        if not isinstance(self._clock, SystemClock) or await self._store.time() is None:
            return
        for _ in range(TRIES):
            if await self.look(self._clock):
                break
        make, clock = asyncio.get_running_loop().create_task, self._clock
        keeping = self._keep(clock)
        self._task = contextvars.Context().run(lambda: make(keeping, name="holdfast-time"))

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _keep(self, clock: SystemClock) -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS * random.uniform(0.75, 1.25))
            try:
                await self.look(clock)
            except StoreError as error:
                log.debug("the store does not tell the time, asking again later: %s", error)

    async def look(self, clock: SystemClock) -> bool:
        """Compares the clocks; False: it took too long to tell."""
        before = clock.now()
        told = await self._store.time()
        took = clock.now() - before
        if told is None or not 0 <= took <= QUICK:
            return False
        ahead = before + took // 2 - told
        if abs(ahead) > AGREES + took // 2:
            clock.ahead += ahead
            log.warning(
                "this machine's clock is %.1f s %s the store's, which this worker goes by",
                abs(clock.ahead) / 1e6,
                "ahead of" if clock.ahead > 0 else "behind",
            )
        return True
