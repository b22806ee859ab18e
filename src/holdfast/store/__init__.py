"""Where runs are kept. SQL lives below this package and nowhere else.

The functions here are the only place that tells one kind of store from another, by its url. What
only commands need is imported when they ask for it: the rest counts in every recovery.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from holdfast.clock import SystemClock
from holdfast.errors import StoreError, Unsupported
from holdfast.store.base import Store
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.sqlite_open import MEMORY, path_of

if TYPE_CHECKING:
    from holdfast.store.copying import Report
    from holdfast.store.moving import Movable


def open_store(url: str) -> Store:
    """The store that a url means; it is opened by `await store.open()`."""
    if _is_postgres(url):
        from holdfast.store.postgres import PostgresStore

        return PostgresStore(url)
    return SQLiteStore(url)


def exists(url: str) -> bool:
    """Whether there is something to open; opening creates a file that is missing."""
    return _is_postgres(url) or os.path.exists(path_of(url))


def is_shared(url: str) -> bool:
    """Whether other processes can see this store."""
    return _is_postgres(url) or path_of(url) != MEMORY


async def upgrade_script(url: str) -> str:
    """SQL that brings the store's schema up to date, to be applied by hand; empty: it is."""
    if _is_postgres(url):
        return str(await _postgres_open().upgrade_script(url))
    from holdfast.store import sqlite_upkeep

    return sqlite_upkeep.upgrade_script(path_of(url))


async def upgrade(url: str) -> None:
    """Makes the store, or brings its schema up to date."""
    if _is_postgres(url):
        await _postgres_open().upgrade(url)
        return
    store = SQLiteStore(url)
    await store.open()
    await store.close()


async def restore(url: str, source: str, *, force: bool = False) -> None:
    """Puts a backup in the place of a store that nobody uses."""
    if _is_postgres(url):
        from holdfast.store import postgres_backup

        await postgres_backup.restore(source, url, force=force)
    else:
        from holdfast.store import sqlite_upkeep

        sqlite_upkeep.restore(source, path_of(url), force=force)


async def planned_move(source: str, target: str) -> dict[str, int]:
    """How many rows of each table `move` would move; raises what it would raise."""
    from holdfast.store import moving

    async with _two_ends(source, target) as (here, there):
        return await moving.plan(here, there)


async def move(source: str, target: str, report: Report = lambda _: None) -> bool:
    """Moves all that a store holds to another one, or goes on with that; False: it is done."""
    from holdfast.store import moving

    async with _two_ends(source, target) as (here, there):
        return await moving.move(here, there, SystemClock().now(), report)


async def undo_move(source: str, target: str, report: Report = lambda _: None) -> None:
    """Takes a move back that is not done."""
    from holdfast.store import moving

    async with _two_ends(source, target) as (here, there):
        await moving.undo(here, there, report)


@asynccontextmanager
async def _two_ends(source: str, target: str) -> AsyncIterator[tuple[Movable, Movable]]:
    here, there = _end(source), _end(target)
    try:
        yield here, there
    finally:
        await here.close()
        await there.close()


def _end(url: str) -> Movable:
    if _is_postgres(url):
        from holdfast.store.postgres_copying import PostgresEnd

        return PostgresEnd(url)
    if not is_shared(url):
        raise Unsupported(f"{url} lives inside one process; only a file can be moved.")
    from holdfast.store.sqlite_copying import SQLiteEnd

    return SQLiteEnd(url)


def _postgres_open() -> Any:
    from holdfast.store import postgres_open

    return postgres_open


def _is_postgres(url: str) -> bool:
    scheme, separator, _ = url.partition("://")
    if not separator or scheme == "sqlite":
        return False
    if scheme not in ("postgresql", "postgres"):
        raise StoreError(
            f"{url!r} names no known kind of store. Known are sqlite:///relative.db, "
            "sqlite:////absolute.db, sqlite://:memory: and postgresql://user@host/database."
        )
    try:
        import asyncpg as _  # noqa: F401  its absence is named here, once
    except ModuleNotFoundError:
        raise Unsupported("PostgreSQL needs a driver: pip install 'holdfast[postgres]'.") from None
    return True
