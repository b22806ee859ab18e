"""Which server to talk to, and connections to it.

Of several hosts one takes writes. Each is asked by itself, so that one that is silently gone does
not use up the time of the others. A server of an earlier timeline than one we have seen is an old
primary that came back after a failover: it is refused, because what it is told is lost.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import socket
import sys
import weakref
from typing import Any

import asyncpg

from holdfast.errors import StoreUnavailable, Unsupported
from holdfast.store import postgres_errors as errors
from holdfast.store.postgres_address import Address

Connection = Any  # asyncpg's own types are not generic over what we use

CONNECT_SECONDS = 4.0
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 11_000}
_CHECK_INTERVAL = "500ms"
_SERVER_SETTINGS = {
    # A backend whose client is gone must not keep its locks until its statement is done.
    "client_connection_check_interval": _CHECK_INTERVAL,
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    # What an administrator has set for sessions in general is not meant for these: they watch for
    # seconds, and hold signs of life for as long as a worker lives. Statements that take too long
    # are ended from this side.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_session_timeout": "0",
}

_open: weakref.WeakSet[Any] = weakref.WeakSet()
_forks = 0


# transaction_timeout is not known to servers before 17, which would refuse it as a setting.
_ABOUT = """
SELECT CASE WHEN pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' THEN ''
    ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS timeline,
    current_setting('client_connection_check_interval') AS interval
"""
_NO_TRANSACTION_TIMEOUT = """,
    CASE WHEN current_setting('transaction_timeout', true) <> '0'
        THEN set_config('transaction_timeout', '0', false) END
"""
_POOLER = (
    "This address leads to a pooler, which keeps neither locks nor LISTEN: add the servers "
    "themselves, as ?direct=db1:5432,db2:5432."
)


class Servers:
    """The hosts of an address, and what is known of them. Used by two threads, each with its own
    loop; nothing here is more than a hint but the newest timeline, which only ever rises."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._timeline = ""
        self._good = 0

    async def find_newest(self) -> None:
        """Asks all hosts, so that an old primary is not taken for the one just because it is the
        first to answer."""
        if len(self.address.hosts) == 1:
            return
        for number in range(len(self.address.hosts)):
            try:
                await close(await self._connect_to(number, direct=False, settings={}))
            except (*errors.DRIVER_ERRORS, StoreUnavailable):
                continue

    async def connect(self, *, direct: bool = False, **settings: str) -> Connection:
        """A connection to the host that takes writes."""
        hosts = self.address.direct if direct else self.address.hosts
        failure: BaseException | None = None
        for turn in range(len(hosts)):
            number = (self._good + turn) % len(hosts)
            try:
                connection = await self._connect_to(number, direct=direct, settings=settings)
            except (*errors.DRIVER_ERRORS, StoreUnavailable) as error:
                failure = failure or error
            else:
                self._good = number
                return connection
        assert failure is not None
        raise failure

    async def _connect_to(
        self, number: int, *, direct: bool, settings: dict[str, str]
    ) -> Connection:
        hosts = self.address.direct if direct else self.address.hosts
        pooled = self.address.pooled and not direct
        connection = await _connect(hosts[number], pooled, settings)
        try:
            about = await connection.fetchrow(
                _ABOUT if pooled else f"{_ABOUT}{_NO_TRANSACTION_TIMEOUT}"
            )
            if not pooled and about["interval"] != _CHECK_INTERVAL:
                raise Unsupported(_POOLER)  # one that was told to ignore our settings
            self._check(about["timeline"])
        except BaseException:
            connection.terminate()
            raise
        self._timeline = about["timeline"]
        return connection

    def _check(self, timeline: str) -> None:
        if not timeline:
            raise StoreUnavailable(
                "This server takes no writes: it is a standby, or default_transaction_read_only "
                "is on."
            )
        if timeline < self._timeline:
            raise StoreUnavailable(
                f"This server is on timeline {timeline}, and another one of {self.address.shown} "
                f"has gone on to {self._timeline}: it is an old primary, and what it is told is "
                "lost. Make it a standby of the new one (pg_rewind)."
            )


async def _connect(url: str, pooled: bool, settings: dict[str, str]) -> Connection:
    """A connection whose callbacks run in nobody's context, least of all in a run's."""

    async def make() -> Connection:
        # A pooler would not let other settings pass.
        ours = {} if pooled else {**_SERVER_SETTINGS, **settings}
        while True:
            forks = _forks
            connection = await asyncpg.connect(
                url,
                timeout=CONNECT_SECONDS,
                statement_cache_size=0 if pooled else 100,
                # Its end would be a timer of whoever asks first, and that may be the body of a run.
                max_cached_statement_lifetime=0,
                server_settings={"application_name": "holdfast", **ours},
            )
            keep_alive(connection)
            _open.add(connection)
            if forks == _forks:
                return connection
            connection.terminate()  # a child has its socket, too, and does not know of it

    loop = asyncio.get_running_loop()
    making = loop.create_task(make(), context=contextvars.Context())
    try:
        return await asyncio.shield(making)
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" in str(error):
            raise Unsupported(_POOLER) from error
        raise
    except asyncio.CancelledError:
        # The driver would leave a half-made connection behind: it is made, and then ended.
        making.add_done_callback(_end)
        giving_up = contextvars.Context().run(lambda: loop.call_later(1, making.cancel))
        await asyncio.wait({making})
        giving_up.cancel()
        raise


def _end(making: asyncio.Task[Connection]) -> None:
    if not making.cancelled() and making.exception() is None:
        making.result().terminate()


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


def _count_fork() -> None:
    global _forks
    _forks += 1


if sys.platform != "win32":
    os.register_at_fork(before=_count_fork, after_in_child=_leave_in_child)


def cut_after(connection: Connection, seconds: float) -> asyncio.TimerHandle:
    """Cuts the connection when a statement takes too long; cancel it when it did not."""
    loop = asyncio.get_running_loop()
    return contextvars.Context().run(loop.call_later, seconds, connection.terminate)


async def close(connection: Connection) -> None:
    try:
        await connection.close(timeout=1)
    except (*errors.DRIVER_ERRORS, asyncio.CancelledError):
        connection.terminate()
