"""Who waits for the end of which run.

Runs that end in this process are told directly; for others the store rings, and a slow look stands
behind it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from collections.abc import Callable, Iterable

from holdfast.client.ids import refuse_if_no_id
from holdfast.errors import NotOpen, StoreError, StoreMoved, UnknownRun
from holdfast.store.base import Store
from holdfast.types import ENDED, RunId, RunRow, Status

log = logging.getLogger("holdfast")

LOOK_SECONDS_EACH = 20e-6
SETTLED = ENDED | {Status.PARKED, Status.QUARANTINED}


class Results:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[RunId, set[asyncio.Future[RunRow]]] = {}
        self._bell = asyncio.Event()
        self._unlisten = store.listen(self._bell.set)
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        # Whether a run is executed in this process, so that its end will be told here.
        self.is_here: Callable[[RunId], bool] = lambda run: False

    def close(self) -> None:
        self._closed = True
        self._unlisten()
        if self._task is not None:
            self._task.cancel()
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(NotOpen("the app was closed while a result was awaited"))
                    future.exception()

    async def wait(self, run: RunId) -> RunRow:
        """The row of the run once it has ended, or been parked or quarantined."""
        if self._closed:
            raise NotOpen
        refuse_if_no_id(run)
        future: asyncio.Future[RunRow] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(run, set())
        waiting.add(future)
        try:
            if self.is_here(run):
                self._watch_from_now_on()  # it may leave without an end, and end elsewhere
                return await future
            # We are on the list before the first look, so that an end which comes while we look is
            # told to us; one that came before is what we see.
            found = await self._store.get(run)
            if not future.done():
                if found is None:
                    raise UnknownRun(f"there is no run {run!r}")
                if found.status in SETTLED:
                    return found
                self._watch_from_now_on()
            return await future
        finally:
            waiting.discard(future)
            if not waiting and self._waiting.get(run) is waiting:
                del self._waiting[run]

    def settled_here(self, row: RunRow) -> None:
        _tell(self._waiting.get(row.id, ()), row)

    def _watch_from_now_on(self) -> None:
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = contextvars.Context().run(
                lambda: loop.create_task(self._watch(), name="holdfast-results")
            )

    async def _watch(self) -> None:
        while True:
            nap = self._store.poll_seconds / 2 * (0.75 + random.random() / 2)
            poll = asyncio.get_running_loop().call_later(nap, self._bell.set)
            await self._bell.wait()
            poll.cancel()
            # Many may wait, and every look asks for them all: the more they are, the longer the
            # pause.
            await asyncio.sleep(LOOK_SECONDS_EACH * len(self._waiting))
            self._bell.clear()
            try:
                await self._look()
            except StoreMoved as error:
                for futures in self._waiting.values():
                    for future in futures:
                        if not future.done():
                            future.set_exception(error)
            except StoreError:
                continue  # the next look may work; whoever waits goes on waiting
            except Exception:
                log.exception("the look for results failed, trying again")

    async def _look(self) -> None:
        # Who comes during the look has looked later: what it finds may be old news by then.
        waiting = self._waiting.items()
        asking = {run: list(futures) for run, futures in waiting if not self.is_here(run)}
        if asking:
            for row in await self._store.settled(list(asking)):
                _tell(asking.get(row.id, ()), row)


def _tell(futures: Iterable[asyncio.Future[RunRow]], row: RunRow) -> None:
    for future in futures:
        if not future.done():
            future.set_result(row)
