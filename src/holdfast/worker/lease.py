"""A worker's right to execute, renewed from a thread of its own.

The thread also watches the event loop: a worker that is alive but hangs is reported with its stack,
and its runs are handed on. The lease is counted from before a renewal was sent, so this side always
thinks it ends no later than the store does; a worker that cannot renew in time stops starting steps
before it ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable

from holdfast.errors import StoreError
from holdfast.store.base import Leasekeeper

log = logging.getLogger("holdfast")

MARGIN = 0.15
"""The part of a lease's life at its end in which nothing new is started."""


class Lease:
    def __init__(
        self,
        keeper: Leasekeeper,
        since: float,
        seconds: float,
        hang_seconds: float,
        on_lost: Callable[[str], None],
        on_restored: Callable[[], None],
    ) -> None:
        self._keeper = keeper
        self._seconds = seconds
        self._hang_seconds = hang_seconds
        self._on_lost = on_lost
        self._on_restored = on_restored
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._until = since + seconds
        self._heartbeat = time.monotonic()
        self._stop = threading.Event()
        self._lapsed = False
        self._thread = threading.Thread(target=self._keep, name="holdfast-lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._keeper.close()

    def holds(self) -> bool:
        held = (
            not self._stop.is_set()
            and time.monotonic() < self._until - self._seconds * MARGIN
            and self._keeper.is_alive()
        )
        if not held:
            self._lapsed = True
        return held

    # On the lease's own thread

    def _keep(self) -> None:
        while not self._stop.wait(self._seconds / 3):
            if self._hangs():
                return
            sent = time.monotonic()
            try:
                renewed = self._keeper.renew()
            except StoreError as error:
                log.warning("the lease could not be renewed, trying again: %s", error)
                continue
            except Exception:
                log.exception("the lease could not be renewed, trying again")
                continue
            if not renewed:
                self._tell(self._on_lost, "another worker took it for dead")
                return
            self._until = sent + self._seconds
            if self._lapsed:
                self._lapsed = False
                self._tell(self._on_restored)

    def _hangs(self) -> bool:
        """Asks the loop for a sign of life; hands the runs on when there was none for too long."""
        self._tell(self._beat)
        silent = time.monotonic() - self._heartbeat
        if silent < self._hang_seconds:
            return False
        frame = sys._current_frames().get(self._loop_thread)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "(no stack)"
        log.error(
            "the event loop has been blocked for %.1f s; its runs are handed on:\n%s", silent, stack
        )
        try:
            self._keeper.hand_back(f"blocked for {silent:.1f} s:\n{stack}")
        except StoreError as error:
            log.warning("the runs could not be handed on: %s; the lease will run out", error)
        self._until = 0.0
        self._tell(self._on_lost, "its event loop was blocked")
        return True

    def _beat(self) -> None:
        self._heartbeat = time.monotonic()

    def _tell(self, callback: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args, context=contextvars.Context())
        except RuntimeError:  # the loop is closed: the process is on its way out
            self._stop.set()
