"""Who waits for the end of which run.

Runs that end in this process are told directly; for others the store rings, and a slow look stands
behind it.
"""

from __future__ import annotations

import asyncio
import random

from holdfast.errors import NotOpen, StoreError, UnknownRun
from holdfast.store.base import Store
from holdfast.types import ENDED, RunId, RunRow, Status

POLL_SECONDS = 1.0
LOOK_SECONDS_EACH = 20e-6
SETTLED = ENDED | {Status.PARKED, Status.QUARANTINED}


class Results:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[RunId, asyncio.Future[RunRow]] = {}
        self._bell = asyncio.Event()
        self._unlisten = store.listen(self._bell.set)
        self._task: asyncio.Task[None] | None = None

    def close(self) -> None:
        self._unlisten()
        if self._task is not None:
            self._task.cancel()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(NotOpen("the app was closed while a result was awaited"))
                future.exception()
        self._waiting.clear()

    async def wait(self, run: RunId) -> RunRow:
        """The row of the run once it has ended, or been parked or quarantined."""
        future = self._waiting.get(run)
        if future is None:
            future = self._waiting[run] = asyncio.get_running_loop().create_future()
            found = await self._store.get(run)
            if found is None:
                self._waiting.pop(run, None)
                future.cancel()
                raise UnknownRun(f"there is no run {run!r}")
            if found.status in SETTLED:
                self._settle(found)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._watch())
        return await asyncio.shield(future)

    def settled_here(self, row: RunRow) -> None:
        self._settle(row)

    def _settle(self, row: RunRow) -> None:
        future = self._waiting.pop(row.id, None)
        if future is not None and not future.done():
            future.set_result(row)

    async def _look(self) -> None:
        if self._waiting:
            for row in await self._store.settled(list(self._waiting)):
                self._settle(row)

    async def _watch(self) -> None:
        while True:
            nap = POLL_SECONDS * (0.75 + random.random() / 2)
            poll = asyncio.get_running_loop().call_later(nap, self._bell.set)
            await self._bell.wait()
            poll.cancel()
            # Many may wait, and every look asks for them all: the more they are, the longer the
            # pause.
            await asyncio.sleep(LOOK_SECONDS_EACH * len(self._waiting))
            self._bell.clear()
            try:
                await self._look()
            except StoreError:
                continue  # the next look may work; whoever waits goes on waiting
