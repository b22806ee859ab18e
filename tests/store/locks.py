"""What a server knows of workers: who holds their liveness locks, and who waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg

T = TypeVar("T")

SECONDS_MAX = 120.0
LOOK_SECONDS = 0.01

_LOCKS = """
SELECT pid FROM pg_locks
WHERE locktype = 'advisory' AND granted = $3 AND mode = $4
  AND (classid::bigint << 32 | objid::bigint) = "{schema}".liveness_key($1, $2)
"""


async def until(look: Callable[[], Awaitable[T]], what: str) -> T:
    """The first true value that `look` returns: a server tells nobody of its sessions."""
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while not (found := await look()):  # noqa: ASYNC110  there is nothing to be told by
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise AssertionError(f"in {SECONDS_MAX:.0f} s this did not happen: {what}") from None
    return found


class Locks:
    """A superuser's view of one store."""

    def __init__(self, server: Any, holder: Any, schema: str) -> None:
        self.server = server
        self.holder = holder
        """A session for locks: one in a transaction sees others' activity as it first saw it."""
        self._sql = _LOCKS.replace("{schema}", schema)
        self.schema = schema

    async def _pids(self, worker: str, which: int, granted: bool, mode: str) -> list[int]:
        rows = await self.server.fetch(self._sql, worker, which, granted, mode)
        return [row["pid"] for row in rows]

    async def holders(self, worker: str) -> list[int]:
        """The sessions that hold its locks, first and second."""
        first = await self._pids(worker, 1, True, "ExclusiveLock")
        return first + await self._pids(worker, 2, True, "ExclusiveLock")

    async def held_by_others_than(self, worker: str, *gone: int) -> list[int]:
        """The sessions that hold both locks, once none of these is among them."""

        async def look() -> list[int]:
            found = await self.holders(worker)
            return found if len(found) == 2 and not set(found) & set(gone) else []

        return await until(look, f"worker {worker} holds its locks on two new sessions")

    async def watchers(self, worker: str, *which: int) -> list[int]:
        """The sessions that wait for one of its locks."""
        found = [await self._pids(worker, n, False, "ShareLock") for n in which or (1, 2)]
        return [pid for pids in found for pid in pids]

    async def waiting(self, worker: str) -> list[int]:
        """The sessions of its own that wait for one of its locks."""
        found = [await self._pids(worker, n, False, "ExclusiveLock") for n in (1, 2)]
        return [pid for pids in found for pid in pids]

    async def cut(self, *pids: int) -> None:
        for pid in pids:
            await self.server.execute("SELECT pg_terminate_backend($1)", pid)


@asynccontextmanager
async def locks(url: str) -> AsyncIterator[Locks]:
    parts = urlsplit(url)
    schema = parse_qs(parts.query).get("schema", ["holdfast"])[0]
    plain = urlunsplit(parts._replace(query=""))
    server, holder = await asyncpg.connect(plain), await asyncpg.connect(plain)
    try:
        yield Locks(server, holder, schema)
    finally:
        for session in (server, holder):
            # A server that a test has ended may answer a farewell with a reset.
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await session.close()


async def come_back(url: str, *gone: int) -> bool:
    """Whether the server takes connections, and has none of these sessions any more."""
    try:
        async with locks(url) as seen:
            sql = "SELECT 1 FROM pg_stat_activity WHERE pid = ANY($1::integer[])"
            return not await seen.server.fetch(sql, gone)
    except (OSError, asyncpg.PostgresError):
        return False
