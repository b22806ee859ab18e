"""What must not wait for the user's event loop: signs of life, renewals, notifications, watching.

A thread with a loop of its own keeps a few sessions that go to the server directly:

- Two lifelines. Each holds a lock per worker of this process; the server frees it when the session
  dies, and the session dies with the process. One cut connection is not a death: dead means both.
  The second one also listens for notifications, the first one carries the renewals.
- One watch, which waits for the lock of the next worker in the ring of all. To wait on a lifeline
  would deadlock a ring of two. A wait that never ends would stop VACUUM everywhere, so it is taken
  up anew every few seconds; a lease that has run out is noticed then.

A session that is lost is opened again for as long as it takes.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.errors import StoreError, StoreUnavailable
from holdfast.store import postgres_errors as errors
from holdfast.store.postgres_bell import WORK
from holdfast.store.postgres_servers import Connection, Servers, close, cut_after
from holdfast.types import WorkerId

log = logging.getLogger("holdfast")

T = TypeVar("T")

WATCH_SECONDS_MAX = 10.0
"""The server answers a watch within three seconds, or is out of reach."""
LOCK_SECONDS_MAX = 6.0
DOUBT_SECONDS = 0.2
FREE, DEAD, OVERDUE = 1, 2, 3  # what the function `watch` says of a worker
NAP_SECONDS_MAX = 2.0
CLOSE_SECONDS = 3.0


class Lifeline:
    """A session that holds locks for as long as it lives, and is replaced when it does not."""

    def __init__(
        self,
        servers: Servers,
        which: int,
        on_notify: Callable[[str], None] | None,
        on_loss: Callable[[set[WorkerId]], None],
        on_up: Callable[[], None],
    ) -> None:
        self._servers = servers
        self._address = address = servers.address
        self._on_notify = on_notify
        self._on_loss = on_loss
        self._on_up = on_up
        self._key = f'"{address.schema}".liveness_key($1, {which})'
        self._connection: Connection | None = None
        self._using = asyncio.Lock()
        self._up = asyncio.Event()
        self._lost = asyncio.Event()
        self.failure: BaseException | None = None  # why it is not up
        self.held: set[WorkerId] = set()
        self.wanted: set[WorkerId] = set()

    async def keep(self) -> None:
        nap = 0.05
        while True:
            try:
                await self._open()
                nap, self.failure = 0.05, None
                await self._lost.wait()
            except (*errors.DRIVER_ERRORS, StoreError) as error:
                self.failure = error
                log.warning("a session with the store is lost, trying again: %s", error)
            except Exception:
                log.exception("a session with the store is lost, trying again")
            finally:
                await self._drop()
            await asyncio.sleep(nap * random.uniform(0.5, 1.5))
            nap = min(nap * 2, NAP_SECONDS_MAX)

    async def _open(self) -> None:
        self._lost.clear()
        # A lease that a crash of the server forgets is no harm: it gives everybody grace.
        connection = await self._servers.connect(direct=True, synchronous_commit="off")
        self._connection = connection
        connection.add_termination_listener(lambda _: self._lost.set())
        for worker in list(self.wanted):
            await self._lock(connection, worker)
        if self._on_notify is not None:
            notify = self._on_notify
            channel = f"holdfast:{self._address.schema}"
            await connection.add_listener(channel, lambda *said: notify(said[-1]))
            notify(WORK)  # for what went by while nobody listened
        self._up.set()
        self._on_up()

    async def _lock(self, connection: Connection, worker: WorkerId) -> None:
        # Whoever watches may have it for a moment.
        lock = f"SELECT pg_advisory_lock({self._key})"
        await self._ask(connection, LOCK_SECONDS_MAX, lock, worker)
        self.held.add(worker)

    async def _ask(self, connection: Connection, seconds: float, sql: str, *values: object) -> Any:
        cut = cut_after(connection, seconds)
        try:
            return await connection.fetchval(sql, *values)
        except errors.DRIVER_ERRORS as error:
            if errors.is_broken(error) or connection.is_closed():
                connection.terminate()  # a driver that gave it up by itself tells no listener
            raise
        finally:
            cut.cancel()

    async def _drop(self) -> None:
        self._up.clear()
        held, self.held = self.held, set()
        self._on_loss(held)
        connection, self._connection = self._connection, None
        if connection is not None:
            await close(connection)

    async def hold(self, worker: WorkerId) -> None:
        self.wanted.add(worker)
        while worker not in self.held:  # the session may be lost again before it is locked
            await self._up.wait()
            async with self._using:
                if worker not in self.held and self._connection is not None:
                    await self._lock(self._connection, worker)

    async def release(self, worker: WorkerId) -> None:
        self.wanted.discard(worker)
        async with self._using:
            if worker in self.held and self._connection is not None:
                self.held.discard(worker)
                unlock = f"SELECT pg_advisory_unlock({self._key})"
                await self._ask(self._connection, LOCK_SECONDS_MAX, unlock, worker)

    @property
    def is_up(self) -> bool:
        return self._up.is_set()

    async def fetchval(self, seconds: float, sql: str, *values: object) -> Any:
        async with self._using:
            connection = self._connection
            if connection is None or not self._up.is_set():
                raise StoreUnavailable(f"There is no connection to {self._address.shown} now.")
            try:
                return await self._ask(connection, seconds, sql, *values)
            except errors.DRIVER_ERRORS as error:
                raise errors.store_error(error, self._address.shown) from error


class Watch:
    """Waits for the death of one worker at a time: the next in the ring after ours."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._schema = f'"{servers.address.schema}"'
        self._watched: dict[WorkerId, list[Callable[[], None]]] = {}
        self._changed = asyncio.Event()
        self._which = 1
        self.own: set[WorkerId] = set()

    def add(self, worker: WorkerId, callback: Callable[[], None]) -> None:
        self._watched.setdefault(worker, []).append(callback)
        self._changed.set()

    def remove(self, worker: WorkerId, callback: Callable[[], None]) -> None:
        callbacks = self._watched.get(worker, [])
        if callback in callbacks:
            callbacks.remove(callback)
            if not callbacks:
                del self._watched[worker]
                self._changed.set()

    def _successor(self) -> WorkerId | None:
        others = sorted(set(self._watched) - self.own)
        if not others:
            return None
        mine = min(self.own, default="")
        return next((other for other in others if other > mine), others[0])

    async def keep(self) -> None:
        connection: Connection | None = None
        nap = 0.05
        try:
            while True:
                self._changed.clear()
                worker = self._successor()
                if worker is None:
                    await self._changed.wait()
                    continue
                try:
                    if connection is None or connection.is_closed():
                        connection = await self._servers.connect(direct=True)
                    await self._watch(connection, worker)
                    nap = 0.05
                except Exception as error:
                    log.debug("the watch over worker %s was interrupted: %s", worker, error)
                    if connection is not None:
                        connection.terminate()
                    await asyncio.sleep(nap * random.uniform(0.5, 1.5))
                    nap = min(nap * 2, NAP_SECONDS_MAX)
        finally:
            if connection is not None:
                await close(connection)

    async def _watch(self, connection: Connection, worker: WorkerId) -> None:
        sql = f"SELECT {self._schema}.watch($1, $2)"
        watching = asyncio.ensure_future(connection.fetchval(sql, worker, self._which))
        changed = asyncio.ensure_future(self._changed.wait())
        cut = cut_after(connection, WATCH_SECONDS_MAX)
        try:
            await asyncio.wait({watching, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            cut.cancel()
            changed.cancel()
            if not watching.done():
                # The ring has changed: somebody else may be the next.
                watching.cancel()
                await asyncio.wait({watching})
        if watching.cancelled():
            return
        found = watching.result()
        if found in (DEAD, OVERDUE):
            for callback in self._watched.pop(worker, []):
                callback()
        elif found == FREE:
            # It lives, and lost one connection; or the server is new and knows none of its locks.
            self._which = 3 - self._which
            await asyncio.sleep(DOUBT_SECONDS * random.uniform(0.5, 1.5))


class Side:
    """The thread, and the doors to it. All methods may be called from any other thread."""

    def __init__(self, servers: Servers, on_notify: Callable[[str], None]) -> None:
        self._servers = servers
        self._address = servers.address
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._on_notify = on_notify
        self._listening = False
        self._living = False
        self._watching = False
        self._doubted: set[WorkerId] = set()  # who lost a line, and may have been reaped
        self._asking: set[asyncio.Task[None]] = set()
        self._renewal = f'SELECT "{servers.address.schema}".renew($1, $2)'
        self._thread = threading.Thread(target=self._main, name="holdfast-postgres", daemon=True)
        self._thread.start()
        self._ready.wait()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        self.first = Lifeline(self._servers, 1, None, self._lost, self._ask)
        self.second = Lifeline(self._servers, 2, self._on_notify, self._lost, self._ask)
        self.watch = Watch(self._servers)
        self._ready.set()
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def call(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Does something on the side's loop, and waits for it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except TimeoutError:
            future.cancel()
            raise StoreUnavailable(
                f"The store {self._address.shown} did not answer within {seconds:g} s."
            ) from None
        except errors.DRIVER_ERRORS as error:
            raise errors.store_error(error, self._address.shown) from error

    async def acall(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        return await asyncio.to_thread(self.call, work, seconds)

    def soon(self, callback: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args, context=contextvars.Context())
        except RuntimeError:
            pass  # it has been closed

    def listen(self) -> None:
        if not self._listening:
            self._listening = True
            self.soon(self._keep, self.second)

    def watch_over(self, worker: WorkerId, callback: Callable[[], None]) -> None:
        """On the side's own thread: calls back, once, when the worker is gone."""
        if not self._watching:
            self._watching = True
            self._keep(self.watch)
        self.watch.add(worker, callback)

    def _keep(self, what: Lifeline | Watch) -> None:
        self._tasks.append(self._loop.create_task(what.keep()))

    async def _live(self, worker: WorkerId) -> None:
        if not self._living:
            self._living = True
            self._keep(self.first)
        self.watch.own.add(worker)
        await asyncio.gather(self.first.hold(worker), self.second.hold(worker))

    async def hold(self, worker: WorkerId, seconds: float) -> None:
        """Takes both locks of a worker; it may be published once they are held."""
        self.listen()
        try:
            await self.acall(self._live(worker), seconds)
        except StoreUnavailable:
            failure = self.first.failure or self.second.failure
            if failure is None:
                raise
            raise errors.store_error(failure, self._address.shown) from failure

    def release(self, worker: WorkerId) -> None:
        """Frees the locks of a worker: it is dead, as far as others can see."""
        try:
            self.call(self._die(worker), CLOSE_SECONDS)
        except StoreError as error:
            log.debug("the locks of worker %s could not be freed: %s", worker, error)

    async def _die(self, worker: WorkerId) -> None:
        self.watch.own.discard(worker)
        self._doubted.discard(worker)
        await asyncio.gather(self.first.release(worker), self.second.release(worker))

    def is_held(self, worker: WorkerId) -> bool:
        """False: others may take this worker for dead right now, or have done so."""
        held = worker in self.first.held or worker in self.second.held
        return held and worker not in self._doubted

    def _lost(self, held: set[WorkerId]) -> None:
        """A line is lost. Perhaps the other is, too, and we have not heard of it yet."""
        self._doubted |= held
        self._ask()

    def _ask(self) -> None:
        """Asks the server at once, so that one cut connection stops nobody for long."""
        if self._doubted and self._line.is_up:
            asking = self._loop.create_task(self._reassure())
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)

    async def _reassure(self) -> None:
        try:
            for worker in list(self._doubted):
                await self._renew(worker, LOCK_SECONDS_MAX)
        except StoreError as error:
            log.debug("it is not known who was reaped: %s", error)

    def renew(self, worker: WorkerId, seconds: float) -> bool:
        """Asks the server to renew a lease; says whether the worker is still on its list."""
        return self.call(self._renew(worker, seconds), seconds + 1)

    async def _renew(self, worker: WorkerId, seconds: float) -> bool:
        locked = worker in self.first.held and worker in self.second.held
        if not await self._line.fetchval(seconds, self._renewal, worker, locked):
            return False
        self._doubted.discard(worker)
        return True

    @property
    def _line(self) -> Lifeline:
        return self.first if self.first.is_up else self.second

    def fetchval(self, seconds: float, sql: str, *values: object) -> Any:
        """Asks the server over a lifeline."""
        return self.call(self._line.fetchval(seconds, sql, *values), seconds + 1)

    def close(self) -> None:
        async def stop() -> None:
            self._doubted.clear()
            tasks = [*self._tasks, *self._asking]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        try:
            self.call(stop(), CLOSE_SECONDS)
        except StoreError:
            pass  # the sessions end with the loop
        self.soon(self._loop.stop)
        self._thread.join()
