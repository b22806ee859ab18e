"""Stores on PostgreSQL that hold nothing, made once and emptied for each test that wants one.

To make one, with all its functions, takes a server a hundred times as long as to empty it. For
tests that are about what a store does; those about its making make their own. Each has a database
to itself: so it can be seen whether anybody is still there.
"""

from __future__ import annotations

import asyncpg

from holdfast.store import upgrade
from holdfast.store.postgres_address import parse
from holdfast.testing.postgres import PostgresServer

_OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = $1 AND tablename <> 'holdfast'"


class EmptiedStores:
    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._made = 0
        self._free: list[str] = []
        self._taken: list[str] = []

    async def take(self) -> str:
        """The url of a store that is the test's own until all are given back."""
        for url in self._free:
            if await self._emptied(url):
                self._free.remove(url)
                break
        else:
            url = await self._new()
        self._taken.append(url)
        return url

    def give_back(self) -> None:
        self._free += self._taken
        self._taken = []

    async def _new(self) -> str:
        name = f"emptied_{self._made}"
        self._made += 1
        connection = await asyncpg.connect(self._server.dsn)
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        finally:
            await connection.close()
        url = self._server.dsn_of(name)
        await upgrade(url)
        return url

    async def _emptied(self, url: str) -> bool:
        """False: somebody of another test is still there, who may write or hold locks."""
        schema = parse(url).schema
        connection = await asyncpg.connect(url)
        try:
            if await connection.fetchval(_OTHERS):
                return False
            tables = [row[0] for row in await connection.fetch(_TABLES, schema)]
            emptied = "; ".join(f'DELETE FROM "{schema}"."{table}"' for table in tables)
            # As if the server was new to it.
            anew = f"UPDATE \"{schema}\".holdfast SET server = '', server_since = now()"
            await connection.execute(f"{emptied}; {anew}")
            return True
        finally:
            await connection.close()
