"""Backups of a PostgreSQL store: a SQLite file, the same as a backup of a SQLite store.

A backup is one consistent snapshot, taken while others go on writing; the server keeps the rows
that it needs until it is done. A restore is one transaction: it is there as a whole or not at all.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.errors import StoreMoved, StoreUnavailable
from holdfast.store import copying, migrate, sqlite_upkeep
from holdfast.store.marks import LEAVING, LEFT, store_moved
from holdfast.store.moving import in_use
from holdfast.store.postgres_copying import PostgresEnd
from holdfast.store.sqlite_copying import SQLiteEnd


def _silent(_: copying.Progress) -> None:
    pass


async def backup(url: str, target: str) -> None:
    """Writes a verified copy. It appears under its name only when whole."""
    source = PostgresEnd(url)
    try:
        if not await source.exists():
            raise StoreUnavailable(f"There is no store {source.shown}.")
        with sqlite_upkeep.new_file(target) as partial:
            async with source.transaction(isolation="repeatable_read", readonly=True):
                mark = await source.mark()
                if mark is not None and mark.state != LEAVING:
                    # What is arriving is not whole, and what has left is old.
                    raise store_moved(mark.state, mark.other, source.shown)
                await _fill(source, partial)
            await asyncio.to_thread(sqlite_upkeep.make_one_file, partial)
            await asyncio.to_thread(sqlite_upkeep.publish, partial, target)
    finally:
        await source.close()


async def _fill(source: PostgresEnd, path: str) -> None:
    copy = SQLiteEnd(path)
    try:
        await copy.make()
        await copying.copy(source, copy, _silent)
        await copying.compare(source, copy, _silent)
    finally:
        await copy.close()


async def restore(path: str, url: str, *, force: bool = False) -> None:
    """Fills a store that holds nothing, or with `force` is emptied first, and that no worker uses.
    A schema that is missing is made."""
    await asyncio.to_thread(sqlite_upkeep.verify, path)
    target = PostgresEnd(url)
    try:
        async with _readable(path) as source:
            await target.make()
            async with target.undisturbed():
                await _require_unused(target, force=force)
                await target.empty()
                await copying.copy(source, target, _silent)
                await copying.compare(source, target, _silent)
    finally:
        await target.close()


async def _require_unused(target: PostgresEnd, *, force: bool) -> None:
    mark = await target.mark()
    if mark is not None and mark.state != LEFT:
        raise store_moved(mark.state, mark.other, target.shown)
    living = await target.workers()
    if living:
        raise in_use(target.shown, living)
    if not force and not await target.is_empty():
        raise StoreUnavailable(
            f"{target.shown} holds data; to restore over it, use force (`--force`)."
        )


@asynccontextmanager
async def _readable(path: str) -> AsyncIterator[SQLiteEnd]:
    """The backup as a store; it stays as it is. One of an older version is upgraded as a copy."""
    with tempfile.TemporaryDirectory(prefix="holdfast-restore-") as folder:
        is_old = bool(migrate.missing(await asyncio.to_thread(sqlite_upkeep.version_of, path)))
        if is_old:
            copied = os.path.join(folder, "copy.db")
            await asyncio.to_thread(sqlite_upkeep.restore, path, copied)
            path = copied
        source = SQLiteEnd(path, read_only=not is_old)
        try:
            await source.make()
            mark = await source.mark()
            if mark is not None:
                raise StoreMoved(
                    f"{path} is a copy of a store that was being moved to or from {mark.other}, or "
                    "had moved: it is not restored."
                )
            yield source
        finally:
            await source.close()
