"""Locks that are freed by death itself, so that a dead worker is noticed in milliseconds.

A worker holds an flock on a file of its own beside the database, from before its row is published
until it ends. Whoever can lock that file knows that the worker is gone. A forked child would keep
the lock alive, so it closes the file (it must not unlock it: the lock is shared with its parent).

A free lock is certain. A held one is not: something else may have inherited it, so the process id
and its start time are looked at too, where they can be seen. What cannot be told here, the lease
tells.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
import weakref
from collections.abc import Callable

from holdfast.errors import StoreError, StoreUnavailable, Unsupported
from holdfast.store import host
from holdfast.types import WorkerId, WorkerRow

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

POLL_SECONDS = 0.02


def _lock(fd: int, *, shared: bool) -> bool:
    """Locks without waiting; False if somebody else holds the lock."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            # Probes share, so that two of them at once do not take each other for the worker.
            mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


class LivenessLock:
    """One worker's sign of life. `path` None: a lock that only this process can see."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._fd: int | None = None
        self._watchers: list[Callable[[], None]] = []

    def acquire(self) -> None:
        if self.path is None:
            return
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreUnavailable(f"The lock file {self.path} cannot be made: {error}") from error
        _held.add(self)
        try:
            if not _lock(self._fd, shared=False):
                raise StoreError(f"{self.path} is locked: two workers have the same id.")
        except OSError as error:
            self._close()
            raise Unsupported(f"{self.path} cannot be locked: {error}") from error
        except BaseException:
            self._close()
            raise

    def release(self) -> None:
        """Dies, as far as others can see; the file stays until somebody reaps the worker."""
        self._close()
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher()

    def on_release(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._watchers.append(callback)
        return lambda: self._watchers.remove(callback) if callback in self._watchers else None

    def _close(self) -> None:
        _held.discard(self)
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


_held: weakref.WeakSet[LivenessLock] = weakref.WeakSet()


def _close_in_child() -> None:
    for lock in list(_held):
        lock._close()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_in_child)


class Liveness:
    """The liveness locks of one store. `folder` None: a store that only this process can see."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._own: dict[WorkerId, LivenessLock] = {}

    def _path(self, worker: WorkerId) -> str | None:
        if self._folder is None:
            return None
        assert "/" not in worker and "\0" not in worker
        return os.path.join(self._folder, f"{worker}.lock")

    def hold(self, worker: WorkerId) -> LivenessLock:
        lock = LivenessLock(self._path(worker))
        lock.acquire()
        self._own[worker] = lock
        return lock

    def release(self, worker: WorkerId) -> None:
        lock = self._own.pop(worker, None)
        if lock is not None:
            lock.release()

    def unlink(self, worker: WorkerId) -> None:
        """Removes what a worker that is gone left behind."""
        path = self._path(worker)
        if path is not None:
            try:
                os.unlink(path)
            except OSError:
                pass  # somebody else did, or the next one will

    def is_dead(self, worker: WorkerRow) -> bool:
        if worker.id in self._own:
            return False
        if self._folder is None:
            return True
        if self._is_free(worker.id):
            return True
        here = worker.host == host.host_id()
        return here and host.process_started(worker.pid) != worker.process_started

    def _is_free(self, worker: WorkerId) -> bool:
        path = self._path(worker)
        assert path is not None
        try:
            fd = os.open(path, os.O_RDWR)
        except OSError:
            return False  # no file, no knowledge
        try:
            return _lock(fd, shared=True)
        finally:
            os.close(fd)

    # Watching

    def watch(self, worker: WorkerRow, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back on the running loop, once, when the worker dies."""
        loop = asyncio.get_running_loop()
        watch = _Watch(loop, callback)
        own = self._own.get(worker.id)
        if own is not None:
            watch.stop_with(own.on_release(watch.fire))
        elif not self._watch_process(worker, watch, loop):
            thread = threading.Thread(
                target=self._poll, args=(worker, watch), name="holdfast-watch", daemon=True
            )
            thread.start()
        return watch.cancel

    def _watch_process(
        self, worker: WorkerRow, watch: _Watch, loop: asyncio.AbstractEventLoop
    ) -> bool:
        """Lets the kernel tell; False where it cannot, or the worker is in this very process."""
        if worker.host != host.host_id() or worker.pid == os.getpid():
            return False
        if sys.platform != "linux":
            return False
        try:
            fd = os.pidfd_open(worker.pid)
        except ProcessLookupError:
            watch.fire()
            return True
        except (AttributeError, OSError):
            return False
        # Only now is it certain that the pid is not used by another process later.
        if host.process_started(worker.pid) != worker.process_started:
            os.close(fd)
            watch.fire()
            return True

        def stop() -> None:
            loop.remove_reader(fd)
            os.close(fd)

        def died() -> None:
            watch.fire()

        contextvars.Context().run(loop.add_reader, fd, died)
        watch.stop_with(stop)
        return True

    def _poll(self, worker: WorkerRow, watch: _Watch) -> None:
        while not watch.stopped.wait(POLL_SECONDS):
            if self.is_dead(worker):
                watch.fire()
                return


class _Watch:
    """Fires once, on its loop, unless it is cancelled first."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._stop: Callable[[], None] | None = None
        self.stopped = threading.Event()

    def stop_with(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def fire(self) -> None:
        """May be called from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._ring, context=contextvars.Context())
        except RuntimeError:
            pass  # the loop is closed: nobody is left to be told

    def _ring(self) -> None:
        if not self.stopped.is_set():
            self.cancel()
            self._callback()

    def cancel(self) -> None:
        self.stopped.set()
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()
