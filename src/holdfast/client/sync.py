"""The one sync door: the async app, driven from code that has no event loop.

It stands before the same objects; there are no twins of them. Not for use on an event loop's own
thread.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any

from holdfast.errors import NotOpen

if TYPE_CHECKING:
    from holdfast.client.app import Holdfast


class SyncDoor:
    """Opens the app on an event loop in a thread of its own.

    with app.sync() as door:
        run = door.start(research, "why?")
        print(run.result())
    """

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Any:
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="holdfast-sync", daemon=True)
        self._thread.start()
        try:
            self.call(self._app.open())
        except BaseException:
            self._stop()
            raise
        return _Behind(self, self._app)

    def __exit__(self, *exc: object) -> None:
        try:
            self.call(self._app.close())
        finally:
            self._stop()

    def call(self, coroutine: Any) -> Any:
        if self._loop is None:
            coroutine.close()
            raise NotOpen("use `with app.sync() as door:`")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _stop(self) -> None:
        assert self._loop is not None and self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = None


class _Behind:
    """An object behind the door: its coroutine methods block, what they return is behind the door
    too."""

    def __init__(self, door: SyncDoor, target: Any) -> None:
        self._door, self._target = door, target

    def __repr__(self) -> str:
        return repr(self._target)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            value = found(*args, **kwargs)
            if inspect.iscoroutine(value):
                value = self._door.call(value)
            return _Behind(self._door, value) if _is_ours(value) else value

        return call


def _is_ours(value: object) -> bool:
    return type(value).__module__.startswith("holdfast.client.")
