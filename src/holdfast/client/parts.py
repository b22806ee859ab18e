"""What an app has while it is open."""

from __future__ import annotations

import asyncio

from holdfast.client.results import Results
from holdfast.clock import Clock
from holdfast.engine.commit import Committer
from holdfast.errors import WrongEventLoop
from holdfast.store.base import Store
from holdfast.worker.timekeeper import Timekeeper
from holdfast.worker.worker import Worker


class Parts:
    """What an app has while it is open; shared by the copies that `with_options` makes."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.loop: asyncio.AbstractEventLoop | None = None
        self.store: Store | None = None
        self.worker: Worker | None = None
        self.committer: Committer | None = None
        self.results: Results | None = None
        self.timekeeper: Timekeeper | None = None  # a worker has its own

    def clear(
        self,
    ) -> tuple[Store | None, Worker | None, Committer | None, Results | None]:
        """Gives up everything at once, so that nobody opens or closes it a second time."""
        if self.timekeeper is not None:
            self.timekeeper.close()
        self.timekeeper = None
        had = self.store, self.worker, self.committer, self.results
        self.loop = self.store = self.worker = self.committer = self.results = None
        return had

    def require_loop(self) -> None:
        """What is open here lives on one event loop, and waits and rings there without locks."""
        here = asyncio._get_running_loop()
        if here is None or self.loop is None or here is self.loop:
            return
        if self.loop.is_closed():
            raise WrongEventLoop(
                "the event loop that this app was opened on is closed: open, use and close it on "
                "one loop, with `async with app:`"
            )
        raise WrongEventLoop(
            "this app was opened on another event loop. Call it there: "
            "`asyncio.run_coroutine_threadsafe(app.start(...), loop).result()` with the loop that "
            "opened it; or, in a process of plain threads, open it with `with app.sync() as door:` "
            "and let every thread use the door"
        )
