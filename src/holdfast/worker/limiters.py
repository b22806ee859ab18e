"""Limiters in the store: what the runs of this process ask of them at once is asked in one call.

A store that is out of reach is asked again until it answers: no step begins meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.clock import Clock, Micros
from holdfast.errors import StoreError
from holdfast.store.base import Reservation, Store

T = TypeVar("T")
log = logging.getLogger("holdfast")

PAUSE_SECONDS = 0.5
RESERVATIONS_MAX = 500


class StoreLimiters:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._waiting: list[tuple[Reservation, asyncio.Future[Micros]]] = []
        self._task: asyncio.Task[None] | None = None

    async def reserve(self, asked: Reservation) -> Micros:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Micros] = loop.create_future()
        self._waiting.append((asked, future))
        if self._task is None or self._task.done():
            # It serves others, too: it must not belong to the run that happens to be the first.
            self._task = contextvars.Context().run(lambda: loop.create_task(self._serve()))
        return await future

    async def hold_off(self, name: str, until: Micros) -> None:
        # What it takes, and naps between tries, are none of the run's doing.
        holding = self._insist(lambda: self._store.hold_off(name, until))
        make = asyncio.get_running_loop().create_task
        await contextvars.Context().run(lambda: make(holding))

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _serve(self) -> None:
        while self._waiting:
            now, self._waiting = self._waiting[:RESERVATIONS_MAX], self._waiting[RESERVATIONS_MAX:]
            for (_, future), at in zip(now, await self._places(now), strict=True):
                if not future.done():
                    future.set_result(at)

    async def _places(self, now: list[tuple[Reservation, asyncio.Future[Micros]]]) -> list[Micros]:
        asked = [one for one, _ in now]
        return await self._insist(lambda: self._store.reserve(asked, self._clock.now()))

    async def _insist(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        while True:
            try:
                return await ask()
            except StoreError as error:
                log.warning("a limiter cannot be reached, trying again: %s", error)
            await asyncio.sleep(PAUSE_SECONDS)
