"""Workers that have nothing to do: they ask for next to nothing, and are in nobody's way."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack
from functools import partial

import asyncpg
import pytest

pytest.register_assert_rewrite("holdfast.testing")

import holdfast  # noqa: E402
from holdfast.store import upgrade  # noqa: E402
from holdfast.store.postgres import PostgresStore  # noqa: E402
from holdfast.testing.conformance.given import worker  # noqa: E402
from holdfast.testing.postgres import PostgresServer  # noqa: E402
from tests.store.locks import SECONDS_MAX, Locks, locks, until  # noqa: E402

WORKERS = 10
WINDOW_SECONDS_MIN = 20.0


@holdfast.workflow
async def nothing() -> None: ...


async def every_watch(seen: Locks, names: list[str]) -> None:
    for name in names:
        await until(partial(seen.watchers, name), f"{name} is watched")


class Vacuum:
    """Vacuums a table as often as is needed."""

    def __init__(self, server: asyncpg.Connection, table: str) -> None:
        self._server, self._table = server, table
        self._said: list[str] = []
        server.add_log_listener(lambda _, said: self._said.append(f"{said} {said.detail}"))

    async def leaves_no_dead_rows(self) -> bool:
        self._said.clear()
        await self._server.execute(f"VACUUM (VERBOSE) {self._table}")
        # The same in the words of PostgreSQL 15 and newer, and of 14.
        wanted = r"(\d+) (?:are dead but not yet removable|dead row versions cannot be removed yet)"
        found = re.search(wanted, "\n".join(self._said))
        assert found is not None, self._said
        return found[1] == "0"


async def test_vacuum_and_new_indexes_go_on_beside_ten_idle_workers(postgres_url: str) -> None:
    await upgrade(postgres_url)
    names = [f"w{n}" for n in range(WORKERS)]
    told: list[str] = []
    async with AsyncExitStack() as stack:
        seen = await stack.enter_async_context(locks(postgres_url))
        stores = [PostgresStore(postgres_url) for _ in names]
        for store, name in zip(stores, names, strict=True):
            await store.open()
            stack.push_async_callback(store.close)
            await worker(store, name)
        for store, name in zip(stores, names, strict=True):
            for other in await store.workers():
                if other.id != name:
                    store.watch(other, partial(told.append, other.id))
        await every_watch(seen, names)
        table = f'"{seen.schema}".hot'
        await seen.server.execute(f"CREATE TABLE {table} (n integer)")
        await seen.server.execute(f"INSERT INTO {table} SELECT generate_series(1, 10000)")
        await seen.server.execute(f"UPDATE {table} SET n = n + 1")
        # They wait all the time, but none for so long that it would keep a row from being removed.
        vacuum = Vacuum(seen.server, table)
        await until(vacuum.leaves_no_dead_rows, "VACUUM removes all dead rows")
        async with asyncio.timeout(SECONDS_MAX):
            await seen.server.execute(f"CREATE INDEX CONCURRENTLY hot_n ON {table} (n)")
        await every_watch(seen, names)
        assert told == []


async def test_an_idle_worker_sends_about_one_statement_per_second() -> None:
    settings = {"log_statement": "all"}
    with PostgresServer(fsync=False, settings=settings) as server:
        await upgrade(server.dsn)
        async with AsyncExitStack() as stack:
            apps = [holdfast.Holdfast(server.dsn, workflows=[nothing]) for _ in range(2)]
            for app in apps:
                await stack.enter_async_context(app)
            names = [row.id for row in await apps[0].workers()]
            seen = await stack.enter_async_context(locks(server.dsn))
            await every_watch(seen, names)
            begun, read = time.monotonic(), len(server.log)

            async def window_is_over() -> bool:
                return time.monotonic() - begun > WINDOW_SECONDS_MIN

            await until(window_is_over, "the window is over")
            seconds = time.monotonic() - begun
            said = await asyncio.to_thread(lambda: server.log[read:])
        statements = re.findall(r"\] holdfast LOG: +(?:execute|statement)[^:]*: (.*)", said)
        per_worker = len(statements) / len(apps)
        assert statements, "the server logs what it is asked"
        # One on the long run; a few more if its slow poll falls into this window often: with the
        # luck of both workers against us, half as many again.
        assert per_worker <= seconds * 2, "\n".join(statements)
