"""A SQLite file as one end of a copy or a move.

Statements run on threads: a copy that an app asks for must not keep its event loop waiting.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeVar

from holdfast.clock import Micros
from holdfast.store import sqlite_upkeep, sqlite_workers
from holdfast.store.copying import GUARDED, READ_ROWS_FIRST, TABLES, Row, Table, rows_to_read
from holdfast.store.doorbell import Doorbell
from holdfast.store.liveness import Liveness
from holdfast.store.marks import ARRIVING, COPYING, Mark, store_moved
from holdfast.store.moving import NotFree, in_use, not_empty, not_ours
from holdfast.store.sqlite_errors import store_error
from holdfast.store.sqlite_lanes import Db, Writer
from holdfast.store.sqlite_open import connected, open_database, path_of
from holdfast.types import WorkerRow

T = TypeVar("T")

_MARK = "SELECT state, other, token FROM moves"
_CHANGE = "UPDATE moves SET state = ? WHERE token = ? AND state = ?"
_REFUSE = """
CREATE TRIGGER moved_{table}_{verb} BEFORE {verb} ON {table}
WHEN NOT EXISTS (SELECT 1 FROM moves WHERE state = 'copying')
BEGIN SELECT RAISE(ABORT, 'this store is being moved or has moved: see its table moves'); END
"""
_ORPHANS = "SELECT DISTINCT owner FROM runs WHERE owner IS NOT NULL"
_VERBS = ("insert", "update", "delete")


class SQLiteEnd:
    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self.path = path_of(url)
        self.shown = f"sqlite:///{self.path}"
        self._bell = Doorbell(f"{self.path}-workers")
        self._liveness = Liveness(f"{self.path}-workers")
        self._token: str | None = None  # of the move whose rows are written
        self._read_only = read_only
        self._lanes: tuple[Writer | None, Db] | None = None

    # Life

    async def exists(self) -> bool:
        if self._lanes is None and os.path.exists(self.path):  # noqa: ASYNC240  one look
            await self.make()
        return self._lanes is not None

    async def make(self) -> None:
        if self._lanes is None:
            self._lanes = await asyncio.to_thread(self._open)

    def _open(self) -> tuple[Writer | None, Db]:
        if self._read_only:
            return None, sqlite_upkeep.read_only(self.path)
        writer = Writer(open_database(self.path), self.path, self._bell.ring, lambda: None)
        return writer, connected(self.path)

    async def close(self) -> None:
        lanes, self._lanes = self._lanes, None
        if lanes is not None:
            self._bell.close()
            lanes[1].close()
            if lanes[0] is not None:
                lanes[0].close_now()

    async def _write(self, work: Callable[[Db], T]) -> T:
        assert self._lanes is not None and self._lanes[0] is not None
        return await asyncio.to_thread(self._lanes[0].run_now, work)

    async def _read(self, work: Callable[[Db], T]) -> T:
        assert self._lanes is not None
        db = self._lanes[1]

        def look() -> T:
            try:
                return work(db)
            except sqlite3.Error as error:
                raise store_error(error, self.path) from error

        return await asyncio.to_thread(look)

    # Rows

    async def columns(self, table: Table) -> list[str]:
        return await self._read(
            lambda db: [row[1] for row in db.execute(f"PRAGMA table_info({table.name})")]
        )

    async def count(self, table: Table) -> int:
        found = await self._read(
            lambda db: db.execute(f"SELECT count(*) FROM {table.name}").fetchone()
        )
        return int(found[0])

    async def read(
        self, table: Table, columns: Sequence[str], after: Row | None
    ) -> AsyncGenerator[list[Row], None]:
        key = ", ".join(table.key)
        above = f"WHERE ({key}) > ({', '.join('?' * len(table.key))})" if after else ""
        sql = f"SELECT {', '.join(columns)} FROM {table.name} {above} ORDER BY {key}"
        cursor = await self._read(lambda db: db.execute(sql, after or ()))
        count = READ_ROWS_FIRST
        try:
            while chunk := await self._fetch(cursor, count):
                yield chunk
                count = rows_to_read(count, chunk)
        finally:
            cursor.close()

    async def _fetch(self, cursor: sqlite3.Cursor, count: int) -> list[Row]:
        return await self._read(lambda _: cursor.fetchmany(count))

    async def last(self, table: Table) -> Row | None:
        order = ", ".join(f"{name} DESC" for name in table.key)
        sql = f"SELECT {', '.join(table.key)} FROM {table.name} ORDER BY {order} LIMIT 1"
        return await self._read(lambda db: db.execute(sql).fetchone())

    async def write(self, table: Table, columns: Sequence[str], rows: list[Row]) -> None:
        marks = ", ".join("?" * len(columns))
        sql = (
            f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({marks}) "
            "ON CONFLICT DO NOTHING"
        )

        def work(db: Db) -> None:
            self._let_in(db)
            db.executemany(sql, rows)
            self._let_nobody_in(db)

        await self._write(work)

    def _let_in(self, db: Db) -> None:
        """Opens the guard inside this transaction, if the target is still that of our move."""
        if self._token is None:
            return
        if db.execute(_CHANGE, (COPYING, self._token, ARRIVING)).rowcount != 1:
            raise not_ours(self.shown)

    def _let_nobody_in(self, db: Db) -> None:
        if self._token is not None:
            db.execute(_CHANGE, (ARRIVING, self._token, COPYING))

    async def counters(self) -> dict[str, int]:
        found = await self._read(
            lambda db: dict(db.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
        )
        return {table.name: found.get(table.name, 0) for table in TABLES if table.counted}

    async def raise_counters(self, counters: dict[str, int]) -> None:
        def work(db: Db) -> None:
            for name, seq in counters.items():
                change = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?"
                if db.execute(change, (seq, name)).rowcount == 0:
                    db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, seq))

        await self._write(work)

    # Moving

    async def mark(self) -> Mark | None:
        return await self._read(_mark)

    async def is_empty(self) -> bool:
        return await self._read(_is_empty)

    async def workers(self) -> list[WorkerRow]:
        return await self._read(self._living)

    def _living(self, db: Db) -> list[WorkerRow]:
        return [
            worker
            for worker in sqlite_workers.workers(db)
            if worker.lease_left_seconds > 0 and not self._liveness.is_dead(worker)
        ]

    async def leave(self, mark: Mark, now: Micros) -> None:
        await self._write(lambda db: self._leave(db, mark, now))

    def _leave(self, db: Db, mark: Mark, now: Micros) -> None:
        there = _mark(db)
        if there is not None:
            raise store_moved(there.state, there.other, self.shown)
        self._mark_as(db, mark, now)

    async def arrive(self, mark: Mark, now: Micros) -> None:
        await self._write(lambda db: self._arrive(db, mark, now))
        self._token = mark.token

    def _arrive(self, db: Db, mark: Mark, now: Micros) -> None:
        there = _mark(db)
        if there is None:
            if not _is_empty(db):
                raise not_empty(self.shown)
            self._mark_as(db, mark, now)
        elif (there.state, there.token) != (mark.state, mark.token):
            raise NotFree(str(store_moved(there.state, there.other, self.shown)))

    def _mark_as(self, db: Db, mark: Mark, now: Micros) -> None:
        living = self._living(db)
        if living:
            raise in_use(self.shown, living)
        for worker in sqlite_workers.workers(db):
            sqlite_workers.reap(db, worker.id, now, lambda _: True)
        # Nobody would ever reap an owner that is not registered.
        for (owner,) in db.execute(_ORPHANS).fetchall():
            sqlite_workers.free(db, owner, now)
        db.execute(
            "INSERT INTO moves (one, state, other, token, at) VALUES (1, ?, ?, ?, ?)", (*mark, now)
        )
        for table in GUARDED:
            for verb in _VERBS:
                db.execute(_REFUSE.format(table=table, verb=verb))

    async def change(self, token: str, before: str, after: str) -> bool:
        def work(db: Db) -> bool:
            db.news = True  # whoever waits for the end of a run will not see it here
            return db.execute(_CHANGE, (after, token, before)).rowcount == 1

        return await self._write(work)

    async def unmark(self, token: str, state: str, *, emptied: bool = False) -> bool:
        def work(db: Db) -> bool:
            which = "DELETE FROM moves WHERE token = ? AND state = ?"
            if db.execute(which, (token, state)).rowcount != 1:
                return False
            for table in GUARDED:
                for verb in _VERBS:
                    db.execute(f"DROP TRIGGER IF EXISTS moved_{table}_{verb}")
            if emptied:
                for name in GUARDED:
                    db.execute(f"DELETE FROM {name}")
            return True

        return await self._write(work)


def _mark(db: Db) -> Mark | None:
    found = db.execute(_MARK).fetchone()
    return Mark(*found) if found else None


def _is_empty(db: Db) -> bool:
    return not any(
        db.execute(f"SELECT EXISTS (SELECT 1 FROM {table.name})").fetchone()[0] for table in TABLES
    )
