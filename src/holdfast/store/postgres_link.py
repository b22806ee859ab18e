"""Connections to PostgreSQL, lost and found again.

A read is simply repeated on another connection. A write whose answer was lost may have happened: it
is sent again under the same request id, and the database does it once. Nothing here cancels a
statement that takes too long: a cancelled wait for a standby is reported as a success. The
connection is cut instead.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import random
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from holdfast.errors import NotOpen, StoreUnavailable, Unsupported
from holdfast.store import postgres_errors as errors
from holdfast.store.postgres_servers import Connection, Servers, close, cut_after

T = TypeVar("T")
Rows = list[Any]

STATEMENT_SECONDS = 15.0
BYTES_PER_SECOND_MIN = 1 << 20
"""A statement has that much more time for what it carries: one that is cut each time never ends."""
LONG_READ_SECONDS = 180.0
RETRY_SECONDS = 10.0
NAP_SECONDS_MAX = 0.5


class Link:
    """A few connections, used by whoever needs one."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self.address = servers.address
        self._idle: list[Connection] = []
        self._slots: asyncio.Semaphore | None = None
        self._pid = os.getpid()
        self._calls: dict[str, str] = {}
        self._prefix = f'SELECT "{self.address.schema}".'

    async def open(self) -> None:
        """Connects once, so that a wrong address is found out here."""
        self._pid = os.getpid()
        try:
            await self._servers.find_newest()
            self._idle.append(await self._servers.connect())
        except (*errors.DRIVER_ERRORS, StoreUnavailable) as error:
            raise errors.store_error(error, self.address.shown) from error
        self._slots = asyncio.Semaphore(self.address.connections)

    async def close(self) -> None:
        self._slots = None
        idle, self._idle = self._idle, []
        for connection in idle:
            await close(connection)

    @property
    def is_open(self) -> bool:
        return self._slots is not None

    async def read(self, sql: str, *values: object, seconds: float = STATEMENT_SECONDS) -> Rows:
        return await self._through(lambda connection, _: connection.fetch(sql, *values), seconds)

    async def write(
        self, function: str, *values: object, id: uuid.UUID | None = None, again: bool = False
    ) -> list[int]:
        """Calls one of our functions, once, however often it has to be sent.

        id: of the request; `again` if the caller has sent it before and got no answer.
        """
        id = id or uuid.uuid4()
        sql = self._calls.get(function)
        if sql is None:
            marks = ", ".join(f"${n}" for n in range(1, len(values) + 3))
            sql = self._calls[function] = f"{self._prefix}{function}({marks})"

        async def send(connection: Connection, repeated: bool) -> list[int]:
            answer = await connection.fetchval(sql, id, again or repeated, *values)
            return answer or []

        seconds = STATEMENT_SECONDS + _bytes_in(values) / BYTES_PER_SECOND_MIN
        return await self._through(send, seconds)

    async def _through(
        self, work: Callable[[Connection, bool], Coroutine[Any, Any, T]], seconds: float
    ) -> T:
        if self._slots is None:
            raise NotOpen(
                f"The store {self.address.shown} is not open: `await store.open()` first."
            )
        if os.getpid() != self._pid:
            raise Unsupported(
                f"The store {self.address.shown} was opened by process {self._pid}, and this is a "
                "forked child of it. Open a store of its own in each process, after the fork."
            )
        until = time.monotonic() + RETRY_SECONDS
        again = False
        nap = 0.01
        async with self._slots:
            while True:
                try:
                    return await self._once(work, again, seconds)
                except (*errors.DRIVER_ERRORS, StoreUnavailable) as error:
                    gone = errors.is_gone(error)
                    again = again or gone
                    over = time.monotonic() > until or self._slots is None
                    if over or not (gone or errors.is_passing(error)):
                        raise errors.store_error(error, self.address.shown) from error
                await _sleep(nap * random.uniform(0.5, 1.5))
                nap = min(nap * 2, NAP_SECONDS_MAX)

    async def _once(
        self,
        work: Callable[[Connection, bool], Coroutine[Any, Any, T]],
        again: bool,
        seconds: float,
    ) -> T:
        connection = await self._take()
        cut = cut_after(connection, seconds)
        try:
            result = await work(connection, again)
        except BaseException as error:
            if errors.is_broken(error) and connection.is_closed():
                raise ConnectionResetError("the connection was lost") from error
            # After a cancellation nobody knows what the connection is about to say.
            if isinstance(error, errors.DRIVER_ERRORS) and not errors.is_gone(error):
                self._give(connection)
            else:
                connection.terminate()
            raise
        finally:
            cut.cancel()
        self._give(connection)
        return result

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._servers.connect()

    def _give(self, connection: Connection) -> None:
        if self._slots is None or connection.is_closed():
            connection.terminate()
        else:
            self._idle.append(connection)


def _bytes_in(values: Iterable[object]) -> int:
    """How much payload a statement carries, in columns too."""
    size = 0
    for value in values:
        if isinstance(value, bytes):
            size += len(value)
        elif isinstance(value, list) and value and isinstance(value[0], bytes | None):
            size += sum(len(one) for one in value if isinstance(one, bytes))
    return size


async def _sleep(seconds: float) -> None:
    """Real time, in nobody's context: in the body of a run `asyncio.sleep` is a durable timer."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    timer = contextvars.Context().run(loop.call_later, seconds, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()
