"""Sets a process's clock by the store's, so that machines which disagree agree on the time.

Rates, schedules, timers, deadlines and the time of a start are times that one process writes and
another reads. A difference that hardly matters is left alone, so that time does not jump to and
fro; whoever was given a clock of another kind keeps it. What it does not guarantee: between two
looks, a machine's clock may be set.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random

from holdfast.clock import Clock, Micros, SystemClock
from holdfast.errors import StoreError
from holdfast.store.base import Store

log = logging.getLogger("holdfast")

EVERY_SECONDS = 30.0
TRIES = 3
AGREES: Micros = 250_000
QUICK: Micros = 500_000


class Timekeeper:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        clock = self._clock
        if not isinstance(clock, SystemClock):
            return
        for _ in range(TRIES):
            seen = await self.look(clock)
            if seen is None:
                return
            if seen:
                break
        make, keeping = asyncio.get_running_loop().create_task, self._keep(clock)
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

    async def look(self, clock: SystemClock) -> bool | None:
        """Compares the clocks. False: the answer took long, and says little; None: there is but
        one clock."""
        before = clock.now()
        told = await self._store.time()
        took = clock.now() - before
        if told is None:
            return None
        ahead = before + took // 2 - told  # or half of that time more or less
        if took >= 0 and abs(ahead) > AGREES + took // 2:
            clock.ahead += ahead
            log.warning(
                "this machine's clock is %.1f s %s the store's, which is gone by here",
                abs(clock.ahead) / 1e6,
                "ahead of" if clock.ahead > 0 else "behind",
            )
        return 0 <= took <= QUICK
