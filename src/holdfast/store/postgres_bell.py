"""Hands notifications from the side's thread to those who listen on the event loop.

One ring stands for all notifications until it is heard.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable

WORK = "work"
END = "end"


class Bell:
    def __init__(self) -> None:
        self._listeners: list[tuple[Callable[[], None], bool]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: set[str] = set()
        self._lock = threading.Lock()

    def listen(self, callback: Callable[[], None], ends: bool) -> Callable[[], None]:
        self._loop = asyncio.get_running_loop()
        listener = (callback, ends)
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def notified(self, news: str) -> None:
        """May be called from any thread."""
        if self._loop is None:
            return  # nobody has ever listened
        with self._lock:
            first = not self._news
            self._news.add(news)
        if first:
            soon(self._loop, self._ring)

    def _ring(self) -> None:
        with self._lock:
            news, self._news = self._news, set()
        for callback, ends in list(self._listeners):
            if ends or news != {END}:
                callback()


def soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(callback, context=contextvars.Context())
    except RuntimeError:
        pass  # the loop is closed: nobody is left to be told
