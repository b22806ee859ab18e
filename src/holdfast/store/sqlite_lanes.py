"""Connections to a SQLite file, and who uses them when.

A writer commits inline on the event loop's thread as long as that is cheap: handing a job over to a
thread and back costs more than an SSD's fsync. When commits get slow, or another process holds the
write lock, jobs queue up on a thread. Readers have a connection of their own: in WAL mode they wait
for nobody. A lane does not retry: a transaction is done as a whole or its error is raised.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from holdfast.errors import StoreError, StoreUnavailable
from holdfast.store.sqlite_errors import is_busy, is_moved, moved, store_error

P = ParamSpec("P")
T = TypeVar("T")

INLINE_SECONDS_MAX = 0.006
BUSY_SECONDS_MAX = 10.0
REPAIR_NAP_SECONDS = 0.005
STALE_SECONDS = 1.0
"""After so long a wait for the write lock, somebody looks who holds it."""


class Db(sqlite3.Connection):
    """A connection. Whatever makes a run claimable, posts mail or ends a run sets `news`.

    ended: runs of sessions that this transaction ends.
    """

    news: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ended: list[int] = []


_open: weakref.WeakSet[Db] = weakref.WeakSet()


def connect(path: str, *, synchronous: str = "FULL") -> Db:
    """Opens a connection. It may wait for a process that just creates or recovers the file."""
    db = sqlite3.connect(
        path,
        timeout=BUSY_SECONDS_MAX,
        isolation_level=None,
        check_same_thread=False,
        factory=Db,
        cached_statements=256,
    )
    try:
        _set_up(db, synchronous)
    except BaseException:
        db.close()
        raise
    _open.add(db)
    return db


def _set_up(db: Db, synchronous: str) -> None:
    db.execute(f"PRAGMA synchronous = {synchronous}")
    db.execute("PRAGMA cache_size = -8192")
    db.execute("PRAGMA temp_store = MEMORY")
    # A burst, or a reader that kept old pages needed, does not leave a huge file behind.
    db.execute("PRAGMA journal_size_limit = 67108864")
    if sys.platform == "darwin":
        # There, a plain fsync leaves the data in the drive's own cache.
        db.execute("PRAGMA fullfsync = ON")
    db.execute("PRAGMA busy_timeout = 0")  # from now on we wait by ourselves


def _abandon_in_child() -> None:
    """A forked child must not even close its parent's connections: it could delete their WAL."""
    import ctypes  # costs milliseconds, and hardly any process forks

    for db in list(_open):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_abandon_in_child)


class _Lane:
    """A connection, the lock that guards it, and a thread for what takes long."""

    def __init__(self, db: Db, path: str, lock: threading.Lock | None, name: str) -> None:
        self._db = db
        self._path = path
        self._lock = lock or threading.Lock()
        self._pid = os.getpid()
        self._name = name
        self._executor: ThreadPoolExecutor | None = None
        self._queued = 0
        self._counting = threading.Lock()

    @property
    def lock(self) -> threading.Lock:
        return self._lock

    def check(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(
                f"The store {self._path} was opened by process {self._pid}, and this is a forked "
                "child of it. Open a store of its own in each process, after the fork."
            )

    async def on_thread(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"holdfast-{self._name}")
        with self._counting:
            self._queued += 1
        future = self._executor.submit(job, *args, **kwargs)
        future.add_done_callback(self._dequeue)
        return await asyncio.wrap_future(future)

    def _dequeue(self, _: Future[Any]) -> None:
        with self._counting:
            self._queued -= 1

    async def close(self) -> None:
        if self._executor is None:
            self.close_now()
        else:
            await self.on_thread(self.close_now)
            self._executor.shutdown(wait=False)

    def close_now(self) -> None:
        with self._lock:
            self._db.close()


class Reader(_Lane):
    def __init__(self, db: Db, path: str, lock: threading.Lock | None = None) -> None:
        super().__init__(db, path, lock, "reader")

    async def run(self, work: Callable[[Db], T], *, short: bool = True) -> T:
        self.check()
        if short and not self._queued and self._lock.acquire(blocking=False):
            try:
                return work(self._db)
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise store_error(error, self._path) from error
            finally:
                self._lock.release()
        return await self.on_thread(self.run_now, work)

    def run_now(self, work: Callable[[Db], T]) -> T:
        """The same on the calling thread. It waits only while another process repairs what a
        third one left behind when it was killed."""
        until = time.monotonic() + BUSY_SECONDS_MAX
        with self._lock:
            while True:
                try:
                    return work(self._db)
                except sqlite3.Error as error:
                    if not is_busy(error) or time.monotonic() > until:
                        raise store_error(error, self._path) from error
                time.sleep(REPAIR_NAP_SECONDS)


class Writer(_Lane):
    """Runs work inside one write transaction.

    on_news: called after a commit that others should hear of, on the committing thread.
    on_ended: called at the end of a transaction that ends runs, as a part of it.
    on_stale: called when the write lock has been held by somebody else for suspiciously long.
    """

    def __init__(
        self,
        db: Db,
        path: str,
        on_news: Callable[[], object],
        on_stale: Callable[[], object],
        on_ended: Callable[[Db], None] | None = None,
    ) -> None:
        super().__init__(db, path, None, "writer")
        self._on_ended = on_ended
        self._on_news = on_news
        self._on_stale = on_stale
        self.average_seconds = 0.0

    async def run(self, work: Callable[[Db], T], *, short: bool = True) -> T:
        self.check()
        # A job that waits on the thread came first: whoever comes now queues up behind it.
        if (
            short
            and not self._queued
            and self.average_seconds < INLINE_SECONDS_MAX
            and self._lock.acquire(blocking=False)
        ):
            try:
                if self._begin():
                    return self._finish(work)
            finally:
                self._lock.release()
        return await self.on_thread(self.run_now, work)

    def run_now(self, work: Callable[[Db], T], *, wait_seconds: float = BUSY_SECONDS_MAX) -> T:
        """The same on the calling thread, however long it takes."""
        self.check()
        with self._lock:
            self._begin_waiting(wait_seconds)
            return self._finish(work)

    def _begin(self) -> bool:
        if self._db.in_transaction:
            self._undo()  # it could not be undone when it failed
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            if is_busy(error):
                return False
            raise store_error(error, self._path) from error
        return True

    def _begin_waiting(self, wait_seconds: float) -> None:
        since = time.monotonic()
        look_after = STALE_SECONDS
        nap = 0.0002
        while not self._begin():
            waited = time.monotonic() - since
            if waited >= wait_seconds:
                raise StoreUnavailable(
                    f"The store {self._path} has been locked for writing by another process for "
                    f"{waited:.1f} s. Find a process that holds a transaction open (an sqlite3 "
                    "shell, a debugger) and end it."
                )
            if waited >= look_after:
                look_after = waited + STALE_SECONDS
                self._on_stale()
            time.sleep(nap * random.uniform(0.5, 1.5))
            nap = min(nap * 1.5, 0.01)

    def _finish(self, work: Callable[[Db], T]) -> T:
        db = self._db
        db.news = False
        db.ended.clear()
        try:
            result = work(db)
            if db.ended and self._on_ended is not None:
                self._on_ended(db)
            # Only the disk's part counts: a thread would not be spared the rest, and would wrangle
            # with the event loop for the interpreter at every statement.
            since = time.perf_counter()
            db.execute("COMMIT")
        except BaseException as error:
            self._undo()
            if is_moved(error):
                raise moved(db, self._path) from error
            if isinstance(error, sqlite3.Error):
                raise store_error(error, self._path) from error
            raise
        self.average_seconds += (time.perf_counter() - since - self.average_seconds) * 0.1
        if db.news:
            self._on_news()
        return result

    def _undo(self) -> None:
        try:
            # SQLite has rolled back by itself after the gravest errors.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            # The error that led here says more than this one.
            pass
