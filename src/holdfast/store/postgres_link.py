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
import socket
import sys
import time
import uuid
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import asyncpg

from holdfast.errors import NotOpen, StoreError
from holdfast.store import postgres_errors as errors
from holdfast.store.postgres_address import Address

T = TypeVar("T")
Connection = Any  # asyncpg's own types are not generic over what we use
Rows = list[Any]

CONNECT_SECONDS = 5.0
STATEMENT_SECONDS = 15.0
RETRY_SECONDS = 10.0
NAP_SECONDS_MAX = 0.5

KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 11_000}
_SERVER_KEEPALIVE = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}

_open: weakref.WeakSet[Any] = weakref.WeakSet()


async def connect(address: Address, *, direct: bool = False, **settings: str) -> Connection:
    """A connection whose callbacks run in nobody's context, least of all in a run's."""

    async def make() -> Connection:
        server_settings = {"application_name": "holdfast", **settings}
        if direct or not address.pooled:
            server_settings |= _SERVER_KEEPALIVE
        connection = await asyncpg.connect(
            address.direct if direct else address.dsn,
            timeout=CONNECT_SECONDS,
            statement_cache_size=0 if address.pooled and not direct else 100,
            server_settings=server_settings,
        )
        keep_alive(connection)
        _open.add(connection)
        return connection

    loop = asyncio.get_running_loop()
    return await loop.create_task(make(), context=contextvars.Context())


def _socket_of(connection: Connection) -> Any:
    transport = getattr(connection, "_transport", None)
    return transport.get_extra_info("socket") if transport is not None else None


def keep_alive(connection: Connection) -> None:
    """Lets the kernel notice a server that is silently gone."""
    found = _socket_of(connection)
    if found is None or found.family == getattr(socket, "AF_UNIX", None):
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _leave_in_child() -> None:
    """A forked child would keep its dead parent's sessions alive. The descriptors are pointed
    elsewhere and not closed: the objects that think they own them will close them some day."""
    null = os.open(os.devnull, os.O_RDWR)
    for connection in list(_open):
        found = _socket_of(connection)
        if found is not None and found.fileno() >= 0:
            os.dup2(null, found.fileno(), inheritable=False)
    os.close(null)


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_leave_in_child)


class Link:
    """A few connections, used by whoever needs one."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._idle: list[Connection] = []
        self._slots: asyncio.Semaphore | None = None
        self._pid = os.getpid()
        self._prefix = f'SELECT "{address.schema}".'

    async def open(self) -> None:
        """Connects once, so that a wrong address is found out here."""
        self._pid = os.getpid()
        try:
            self._idle.append(await connect(self.address))
        except (*errors.DRIVER_ERRORS, ValueError) as error:
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

    async def read(self, sql: str, *values: object) -> Rows:
        return await self._through(lambda connection, _: connection.fetch(sql, *values))

    async def write(
        self, function: str, *values: object, id: uuid.UUID | None = None, again: bool = False
    ) -> list[int]:
        """Calls one of our functions, once, however often it has to be sent.

        id: of the request; `again` if the caller has sent it before and got no answer.
        """
        id = id or uuid.uuid4()
        marks = ", ".join(f"${n}" for n in range(1, len(values) + 3))
        sql = f"{self._prefix}{function}({marks})"

        async def send(connection: Connection, repeated: bool) -> list[int]:
            answer = await connection.fetchval(sql, id, again or repeated, *values)
            return answer or []

        return await self._through(send)

    async def _through(self, work: Callable[[Connection, bool], Coroutine[Any, Any, T]]) -> T:
        if self._slots is None:
            raise NotOpen(
                f"The store {self.address.shown} is not open: `await store.open()` first."
            )
        if os.getpid() != self._pid:
            raise StoreError(
                f"The store {self.address.shown} was opened by process {self._pid}, and this is a "
                "forked child of it. Open a store of its own in each process, after the fork."
            )
        until = time.monotonic() + RETRY_SECONDS
        again = False
        nap = 0.01
        async with self._slots:
            while True:
                try:
                    return await self._once(work, again)
                except errors.DRIVER_ERRORS as error:
                    gone = errors.is_gone(error)
                    again = again or gone
                    over = time.monotonic() > until or self._slots is None
                    if over or not (gone or errors.is_passing(error)):
                        raise errors.store_error(error, self.address.shown) from error
                await asyncio.sleep(nap * random.uniform(0.5, 1.5))
                nap = min(nap * 2, NAP_SECONDS_MAX)

    async def _once(
        self, work: Callable[[Connection, bool], Coroutine[Any, Any, T]], again: bool
    ) -> T:
        connection = await self._take()
        cut = cut_after(connection, STATEMENT_SECONDS)
        try:
            result = await work(connection, again)
        except BaseException as error:
            # After a cancellation nobody knows what the connection is about to say.
            if isinstance(error, asyncpg.PostgresError) and not errors.is_gone(error):
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
        return await connect(self.address)

    def _give(self, connection: Connection) -> None:
        if self._slots is None or connection.is_closed():
            connection.terminate()
        else:
            self._idle.append(connection)


def cut_after(connection: Connection, seconds: float) -> asyncio.TimerHandle:
    """Cuts the connection when a statement takes too long; cancel it when it did not."""
    loop = asyncio.get_running_loop()
    return contextvars.Context().run(loop.call_later, seconds, connection.terminate)


async def close(connection: Connection) -> None:
    try:
        await connection.close(timeout=1)
    except (*errors.DRIVER_ERRORS, asyncio.CancelledError):
        connection.terminate()
