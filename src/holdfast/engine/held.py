"""What a run holds open while it is in memory (`on_leave`), and how that is closed."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable

from holdfast.types import RunId

log = logging.getLogger("holdfast")

CLOSING_SECONDS = 10.0
"""How long a worker that closes waits for what its runs held."""

Closer = Callable[[], Awaitable[None]]

_closing: set[asyncio.Task[None]] = set()


class Held:
    def __init__(self, loop: asyncio.AbstractEventLoop, run: RunId) -> None:
        self._loop, self._run = loop, run
        self._closers: list[Closer] = []
        self._gone = False

    def add(self, close: Closer) -> None:
        self._closers.append(close)
        if self._gone:  # and the code that holds it has not heard of it yet
            self.close()

    def close(self) -> None:
        """The run leaves memory. Each in a task of its own, which is no part of the run."""
        self._gone = True
        closers, self._closers = self._closers, []
        for close in closers:
            task = contextvars.Context().run(self._loop.create_task, self._closed(close))
            _closing.add(task)
            task.add_done_callback(_closing.discard, context=contextvars.Context())

    async def _closed(self, close: Closer) -> None:
        try:
            await close()
        except Exception:
            log.warning("what run %r held open could not be closed", self._run, exc_info=True)


async def all_closed() -> None:
    """What runs have held on this event loop is closed; or takes too long."""
    loop = asyncio.get_running_loop()
    here = {task for task in _closing if task.get_loop() is loop}
    if here:
        await asyncio.wait(here, timeout=CLOSING_SECONDS)
