"""A PostgreSQL schema as one end of a copy or a move.

It has a connection of its own, and every transaction is short, but for a snapshot, which a backup
needs, and a restore. A lost connection is an error: whoever repeats the command goes on.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from holdfast.clock import Micros
from holdfast.errors import StoreError, StoreUnavailable
from holdfast.store import postgres_errors as errors
from holdfast.store import postgres_open
from holdfast.store.copying import GUARDED, READ_ROWS_FIRST, TABLES, Row, Table, rows_to_read
from holdfast.store.marks import ARRIVING, COPYING, Mark, store_moved
from holdfast.store.moving import NotFree, in_use, not_empty, not_ours
from holdfast.store.postgres_address import Address, parse
from holdfast.store.postgres_servers import Connection, Servers, close
from holdfast.types import WorkerRow

T = TypeVar("T")

LOCK_SECONDS = 5
LOCK_TRIES = 5

_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_LIVING = """
SELECT id, host, pid, process_started, started_at, lease_seconds, lease_left(w), note FROM workers w
WHERE lease_left(w) > 0 AND NOT is_dead(id) ORDER BY started_at, id
"""
_MARK = "SELECT state, other, token FROM moves"
_CHANGE = "UPDATE moves SET state = $1 WHERE token = $2 AND state = $3 RETURNING true"
_ORPHANS = "SELECT DISTINCT owner FROM runs WHERE owner IS NOT NULL"
_COUNTER = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {}"
_SEQUENCE = "SELECT pg_get_serial_sequence($1, $2)"


class PostgresEnd:
    def __init__(self, url: str) -> None:
        self.url = url
        self.address = parse(url)
        self.shown = public_url(self.address)
        self._token: str | None = None  # of the move whose rows are written
        self._connection: Connection = None
        self._types: dict[str, dict[str, str]] = {}

    # Life

    async def exists(self) -> bool:
        if self._connection is None and await postgres_open.is_there(self.url):
            await self._connect()
        return self._connection is not None

    async def make(self) -> None:
        if not await self.exists():
            await postgres_open.upgrade(self.url)
            await self._connect()

    async def _connect(self) -> None:
        servers = Servers(self.address)
        try:
            await servers.find_newest()
            self._connection = await servers.connect()
        except (*errors.DRIVER_ERRORS, StoreError) as error:
            raise errors.store_error(error, self.address.shown) from error

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await close(connection)

    @asynccontextmanager
    async def transaction(self, **how: Any) -> AsyncIterator[Connection]:
        """Inside, names mean ours; PostgreSQL's errors come out in Holdfast's words. In another one
        it is a part of that."""
        connection = self._connection
        try:
            async with connection.transaction(**how):
                await connection.execute(
                    f'SET LOCAL search_path = "{self.address.schema}", pg_temp'
                )
                yield connection
        except errors.DRIVER_ERRORS as error:
            raise errors.store_error(error, self.address.shown) from error

    # Rows

    async def columns(self, table: Table) -> list[str]:
        return list(await self._column_types(table))

    async def _column_types(self, table: Table) -> dict[str, str]:
        if table.name not in self._types:
            async with self.transaction() as connection:
                found = await connection.fetch(_COLUMNS, table.name)
            self._types[table.name] = dict(found)
        return self._types[table.name]

    async def count(self, table: Table) -> int:
        async with self.transaction() as connection:
            return int(await connection.fetchval(f"SELECT count(*) FROM {table.name}"))

    async def read(
        self, table: Table, columns: Sequence[str], after: Row | None
    ) -> AsyncGenerator[list[Row], None]:
        key = await self._ordered_key(table)
        marks = ", ".join(f"${n}" for n in range(1, len(key) + 1))
        above = f"WHERE ({', '.join(key)}) > ({marks})" if after else ""
        sql = f"SELECT {', '.join(columns)} FROM {table.name} {above} ORDER BY {', '.join(key)}"
        async with self.transaction() as connection:
            cursor = await connection.cursor(sql, *(after or ()))
            count = READ_ROWS_FIRST
            while found := await cursor.fetch(count):
                chunk = [_plain(row) for row in found]
                yield chunk
                count = rows_to_read(count, chunk)

    async def last(self, table: Table) -> Row | None:
        order = ", ".join(f"{name} DESC" for name in await self._ordered_key(table))
        async with self.transaction() as connection:
            found = await connection.fetchrow(
                f"SELECT {', '.join(table.key)} FROM {table.name} ORDER BY {order} LIMIT 1"
            )
        return tuple(found) if found else None

    async def _ordered_key(self, table: Table) -> list[str]:
        types = await self._column_types(table)
        return [f'{name} COLLATE "C"' if types[name] == "text" else name for name in table.key]

    async def write(self, table: Table, columns: Sequence[str], rows: list[Row]) -> None:
        types = await self._column_types(table)
        arrays = ", ".join(f"${n}::{types[name]}[]" for n, name in enumerate(columns, 1))
        sql = (
            f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT * FROM unnest({arrays}) "
            "ON CONFLICT DO NOTHING"
        )
        values = [
            [None if v is None else bool(v) for v in column] if types[name] == "boolean" else column
            for name, column in zip(columns, map(list, zip(*rows, strict=True)), strict=True)
        ]
        async with self.transaction() as connection:
            if self._token is not None:
                # Whoever copies, too, waits here until this batch is there.
                if not await connection.fetchval(_CHANGE, COPYING, self._token, ARRIVING):
                    raise not_ours(self.shown)
            await connection.execute(sql, *values)
            if self._token is not None:
                await connection.execute(_CHANGE, ARRIVING, self._token, COPYING)

    async def counters(self) -> dict[str, int]:
        found = {}
        async with self.transaction() as connection:
            for table in TABLES:
                if table.counted:
                    sequence = await connection.fetchval(_SEQUENCE, table.name, table.key[0])
                    found[table.name] = await connection.fetchval(_COUNTER.format(sequence))
        return found

    async def raise_counters(self, counters: dict[str, int]) -> None:
        here = await self.counters()
        async with self.transaction() as connection:
            for table in TABLES:
                if table.counted and counters[table.name] > here[table.name]:
                    sequence = await connection.fetchval(_SEQUENCE, table.name, table.key[0])
                    await connection.execute(
                        "SELECT setval($1::text::regclass, $2)", sequence, counters[table.name]
                    )

    async def empty(self) -> None:
        """Deletes everything, the mark too."""
        async with self.transaction() as connection:
            for table in GUARDED:
                await connection.execute(f"DROP TRIGGER IF EXISTS moved ON {table}")
            names = ", ".join((*GUARDED, "requests", "moves"))
            await connection.execute(f"TRUNCATE {names}")

    # Moving

    async def mark(self) -> Mark | None:
        async with self.transaction() as connection:
            return await _mark(connection)

    async def is_empty(self) -> bool:
        async with self.transaction() as connection:
            return await _is_empty(connection)

    async def workers(self) -> list[WorkerRow]:
        async with self.transaction() as connection:
            return await _living(connection)

    @asynccontextmanager
    async def undisturbed(self) -> AsyncIterator[Connection]:
        """A transaction in which nobody else writes: those who just do are waited for."""
        async with self.transaction() as connection:
            await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
            tables = ", ".join((*GUARDED, "moves"))
            await connection.execute(f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE")
            yield connection

    async def leave(self, mark: Mark, now: Micros) -> None:
        await _patiently(lambda: self._leave(mark, now))

    async def _leave(self, mark: Mark, now: Micros) -> None:
        async with self.undisturbed() as connection:
            there = await _mark(connection)
            if there is not None:
                raise store_moved(there.state, there.other, self.shown)
            await self._mark_as(connection, mark, now)

    async def arrive(self, mark: Mark, now: Micros) -> None:
        try:
            await _patiently(lambda: self._arrive(mark, now))
        except StoreUnavailable as error:
            if errors.code_of(error.__cause__ or error) != errors.NO_RIGHT:
                raise
            raise NotFree(
                f"To move a store there, the user must own the schema. {error}"
            ) from error
        self._token = mark.token

    async def _arrive(self, mark: Mark, now: Micros) -> None:
        async with self.undisturbed() as connection:
            there = await _mark(connection)
            if there is None:
                if not await _is_empty(connection):
                    raise not_empty(self.shown)
                await self._mark_as(connection, mark, now)
            elif (there.state, there.token) != (mark.state, mark.token):
                raise NotFree(str(store_moved(there.state, there.other, self.shown)))

    async def _mark_as(self, connection: Connection, mark: Mark, now: Micros) -> None:
        living = await _living(connection)
        if living:
            raise in_use(self.shown, living)
        for (worker,) in await connection.fetch("SELECT id FROM workers ORDER BY id"):
            await connection.execute("SELECT reap($1, $2, true)", worker, now)
        # Nobody would ever reap an owner that is not registered.
        for (owner,) in await connection.fetch(_ORPHANS):
            await connection.execute("SELECT free_runs($1, $2)", owner, now)
        await connection.execute(
            "INSERT INTO moves (state, other, token, at) VALUES ($1, $2, $3, $4)", *mark, now
        )
        for table in GUARDED:
            await connection.execute(
                f"CREATE TRIGGER moved BEFORE INSERT OR UPDATE OR DELETE ON {table} "
                "FOR EACH ROW EXECUTE FUNCTION refuse_moved()"
            )

    async def change(self, token: str, before: str, after: str) -> bool:
        async with self.transaction() as connection:
            # Whoever waits for the end of a run will not see it here.
            await connection.execute("SELECT ring()")
            return bool(await connection.fetchval(_CHANGE, after, token, before))

    async def unmark(self, token: str, state: str, *, emptied: bool = False) -> bool:
        return await _patiently(lambda: self._unmark(token, state, emptied))

    async def _unmark(self, token: str, state: str, emptied: bool) -> bool:
        async with self.undisturbed() as connection:
            which = "DELETE FROM moves WHERE token = $1 AND state = $2 RETURNING true"
            if not await connection.fetchval(which, token, state):
                return False
            if emptied:
                await self.empty()
                return True
            for table in GUARDED:
                await connection.execute(f"DROP TRIGGER IF EXISTS moved ON {table}")
            await self.count_anew()
            return True

    async def count_anew(self) -> None:
        """Tells the planner of the rows; it would find out by itself, but later."""
        async with self.transaction() as connection:
            await connection.execute(f"ANALYZE {', '.join(table.name for table in TABLES)}")


async def _patiently(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Tries again when those who just write were in the way: the server undid it as a whole."""
    for _ in range(LOCK_TRIES - 1):
        try:
            return await work()
        except StoreUnavailable as error:
            if not errors.is_passing(error.__cause__ or error):
                raise
    return await work()


def public_url(address: Address) -> str:
    """The url, without a password and without what says how to connect rather than where to."""
    first = urlsplit(address.hosts[0])
    user, at, _ = first.netloc.rpartition("@")
    hosts = ",".join(urlsplit(host).netloc.rpartition("@")[2] for host in address.hosts)
    kept = [(n, v) for n, v in parse_qsl(first.query) if re.fullmatch("host|port|dbname|user", n)]
    query = urlencode([*kept, ("schema", address.schema)])
    netloc = f"{user.partition(':')[0]}{at}{hosts}"
    return urlunsplit(("postgresql", netloc, first.path, query, ""))


def _plain(row: Any) -> Row:
    return tuple(int(value) if value is True or value is False else value for value in row)


async def _mark(connection: Connection) -> Mark | None:
    found = await connection.fetchrow(_MARK)
    return Mark(*found) if found else None


async def _is_empty(connection: Connection) -> bool:
    for table in TABLES:
        if await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {table.name})"):
            return False
    return True


async def _living(connection: Connection) -> list[WorkerRow]:
    return [WorkerRow(*row) for row in await connection.fetch(_LIVING)]
