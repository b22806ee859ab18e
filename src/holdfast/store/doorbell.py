"""How processes on one database file wake each other without polling.

A store that listens binds a datagram socket in the folder beside the database. Whoever commits
something that others should know of sends one byte to each socket there. A ring says only "look":
it may come without a cause, several may become one, and it may get lost (a worker's slow poll is
behind it). Where there are no such sockets, only listeners of the same store object are told.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import os
import socket
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable

_PATH_BYTES_MAX = 100
_DRAIN_MAX = 64
_SETTLED_SECONDS = 0.1
_QUIET_SECONDS = 0.001
_HAS_SOCKETS = hasattr(socket, "AF_UNIX")


def folder_for_sockets(folder: str) -> str | None:
    """Where sockets go: beside the database, unless their paths would be too long for that."""
    name = os.path.join(folder, "12345678.bell")
    if len(os.fsencode(name)) <= _PATH_BYTES_MAX:
        return folder
    import tempfile  # costs milliseconds, and most paths are short

    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    short = os.path.join(tempfile.gettempdir(), f"holdfast-{digest}")
    return short if len(os.fsencode(short)) + 14 <= _PATH_BYTES_MAX else None


def _is_ours(folder: str) -> bool:
    """Others may write to the directory for temporary files; nobody else may own ours."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    if sys.platform == "win32":
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid in (os.getuid(), 0)


class Doorbell:
    """`folder` None: rings only inside this process."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder_for_sockets(folder) if folder and _HAS_SOCKETS else None
        self._listeners: list[_Listener] = []
        self._ear: _Ear | None = None
        self._out: socket.socket | None = None
        self._others: list[str] = []
        self._listed_at: int | None = None
        self._rung_at = 0.0
        self._again: asyncio.TimerHandle | None = None
        self._sending = threading.Lock()
        if self._folder is not None:
            _bells.add(self)

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        listener = _Listener(asyncio.get_running_loop(), callback)
        self._listeners.append(listener)
        if self._folder is not None and self._ear is None:
            self._ear = _Ear.open(self._folder, listener.loop, self._heard)

        def stop() -> None:
            listener.stopped = True
            if listener in self._listeners:
                self._listeners.remove(listener)
            if not self._listeners:
                self._close_ear()

        return stop

    def close(self) -> None:
        self._listeners.clear()
        self._close_ear()
        if self._again is not None:
            self._again.cancel()
        with self._sending:
            if self._out is not None:
                self._out.close()
                self._out = None

    def _close_ear(self) -> None:
        ear, self._ear = self._ear, None
        if ear is not None:
            ear.close()

    def _heard(self) -> None:
        for listener in list(self._listeners):
            listener.ring()

    def ring(self) -> None:
        """Tells everybody; from any thread."""
        for listener in list(self._listeners):
            listener.ring()
        if self._folder is None:
            return
        now = time.monotonic()
        if now - self._rung_at < _QUIET_SECONDS and self._ring_later():
            return
        self._rung_at = now
        self._send()

    def _ring_later(self) -> bool:
        """Under load one ring in a while is enough; the last one of a burst must not get lost."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        if self._again is None or self._again.cancelled() or self._again.when() < loop.time():
            context = contextvars.Context()
            self._again = loop.call_later(_QUIET_SECONDS, self._send, context=context)
        return True

    def _send(self) -> None:
        with self._sending:
            own = self._ear.path if self._ear is not None else None
            for path in self._find_others():
                if path != own:
                    self._send_to(path)

    def _send_to(self, path: str) -> None:
        if sys.platform == "win32":
            return
        if self._out is None:
            self._out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._out.setblocking(False)
        try:
            self._out.sendto(b"\0", path)
        except BlockingIOError:
            pass  # it has more rings waiting than it can hold
        except ConnectionRefusedError:
            # Names are never used twice, so whoever bound this one is gone for good.
            try:
                os.unlink(path)
            except OSError:
                pass
        except OSError:
            self._listed_at = None

    def _find_others(self) -> list[str]:
        assert self._folder is not None
        try:
            changed_at = os.stat(self._folder).st_mtime_ns
        except OSError:
            return []
        if changed_at != self._listed_at:
            if not _is_ours(self._folder):
                return []
            names = [name for name in os.listdir(self._folder) if name.endswith(".bell")]
            self._others = [os.path.join(self._folder, name) for name in names]
            # A change within the clock's resolution would not show, so a fresh listing is not kept.
            settled = time.time() - changed_at / 1e9 > _SETTLED_SECONDS
            self._listed_at = changed_at if settled else None
        return self._others

    def _forget_in_child(self) -> None:
        self._listeners.clear()
        if self._ear is not None:
            self._ear.socket.close()  # the name stays: it is the parent's
            self._ear = None
        self._sending = threading.Lock()


class _Listener:
    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self.loop = loop
        self.callback = callback
        self.pending = False
        self.stopped = False

    def ring(self) -> None:
        if self.pending:
            return
        self.pending = True
        try:
            # An empty context: the call belongs to no run, whoever happened to ring. From the
            # loop's own thread the call that wakes the selector is saved.
            if _running_loop() is self.loop:
                self.loop.call_soon(self._call, context=contextvars.Context())
            else:
                self.loop.call_soon_threadsafe(self._call, context=contextvars.Context())
        except RuntimeError:
            self.stopped = True  # the loop is closed

    def _call(self) -> None:
        self.pending = False
        if not self.stopped:
            self.callback()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    return asyncio._get_running_loop()


class _Ear:
    """The socket on which a store hears the others."""

    def __init__(self, path: str, bound: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.path = path
        self.socket = bound
        self._loop = loop

    @classmethod
    def open(
        cls, folder: str, loop: asyncio.AbstractEventLoop, heard: Callable[[], None]
    ) -> _Ear | None:
        if sys.platform == "win32":
            return None
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = os.path.join(folder, f"{os.urandom(4).hex()}.bell")
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if not _is_ours(folder):
                raise PermissionError(folder)
            bound.setblocking(False)
            bound.bind(path)
        except OSError:
            bound.close()
            return None  # the poll behind the bell must do
        ear = cls(path, bound, loop)

        def ready() -> None:
            for _ in range(_DRAIN_MAX):
                try:
                    bound.recv(1)
                except OSError:
                    break
            heard()

        contextvars.Context().run(loop.add_reader, bound, ready)
        return ear

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.remove_reader(self.socket)
        self.socket.close()
        try:
            os.unlink(self.path)
        except OSError:
            pass


_bells: weakref.WeakSet[Doorbell] = weakref.WeakSet()


def _forget_in_child() -> None:
    for bell in list(_bells):
        bell._forget_in_child()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_in_child)
