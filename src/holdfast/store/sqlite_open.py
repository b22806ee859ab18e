"""Opening a database file: is it ours, is its schema the right one, and only then anything else.

A file of another product, or of a newer Holdfast, is left exactly as it was found.
"""

from __future__ import annotations

import os
import sqlite3
import time

from holdfast.errors import StoreCorrupt, StoreError, StoreUnavailable, Unsupported
from holdfast.store import host, migrate, queries
from holdfast.store.sqlite_errors import is_busy, store_error
from holdfast.store.sqlite_lanes import BUSY_SECONDS_MAX, Db, connect

APPLICATION_ID = 0x484F4C44
"""Marks a SQLite file as ours: "HOLD"."""

_SQLITE_OLDEST = (3, 35, 0)
MEMORY = ":memory:"


def path_of(url: str) -> str:
    """The absolute path that a url or a plain path means, or ":memory:"."""
    path = url
    for prefix in ("sqlite:///", "sqlite://"):
        if url.startswith(prefix):
            path = url[len(prefix) :]
            break
    if path == MEMORY:
        return MEMORY
    if not path or "://" in path or path.startswith("file:"):
        raise StoreError(
            f"{url!r} names no file: use sqlite:///relative.db, sqlite:////absolute.db or :memory:."
        )
    return os.path.abspath(path)


def open_database(path: str) -> Db:
    """A connection to a file that has been checked, created or upgraded as needed."""
    if sqlite3.sqlite_version_info < _SQLITE_OLDEST:
        oldest = ".".join(map(str, _SQLITE_OLDEST))
        raise Unsupported(
            f"Python's SQLite is {sqlite3.sqlite_version}; at least {oldest} is needed."
        )
    if path != MEMORY:
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            raise StoreUnavailable(f"The directory {folder} does not exist; create it first.")
        host.refuse_network_file_system(path)
    db = connected(path)
    try:
        _prepare(db, path)
    except sqlite3.Error as error:
        db.close()
        raise store_error(error, path) from error
    except BaseException:
        db.close()
        raise
    return db


def connected(path: str, *, synchronous: str = "FULL") -> Db:
    """A further connection to a file that has been opened before."""
    try:
        return connect(path, synchronous=synchronous)
    except sqlite3.Error as error:
        raise store_error(error, path) from error


def _prepare(db: Db, path: str) -> None:
    until = time.monotonic() + BUSY_SECONDS_MAX
    while True:
        try:
            _check_owner(db, path)
            migrate.missing(_version(db))
            if path != MEMORY:
                _use_wal(db, path)
            if migrate.missing(_version(db)):
                _upgrade(db, path)
            return
        except sqlite3.OperationalError as error:
            # Others that open the same new file right now.
            if not is_busy(error) or time.monotonic() > until:
                raise
            if db.in_transaction:
                db.execute("ROLLBACK")
            time.sleep(0.005)


def _version(db: Db) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return version


def _check_owner(db: Db, path: str) -> None:
    # Whose it is is read last: another process may create the store between two statements here,
    # and what we saw before must not be held against what it has become.
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    version = _version(db)
    owner = db.execute("PRAGMA application_id").fetchone()[0]
    if owner == APPLICATION_ID or not (owner or tables or version):
        return
    raise StoreCorrupt(
        f"{path} is a SQLite database of another program. Nothing was changed; choose another path."
    )


def _use_wal(db: Db, path: str) -> None:
    if db.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise Unsupported(f"{path} cannot be put into WAL mode; SQLite stays in {mode!r}.")


def _upgrade(db: Db, path: str) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        _check_owner(db, path)
        version = _version(db)
        pending = migrate.missing(version)
        script = queries.read("sqlite", "schema.sql")
        for text in [script] if version == 0 else [migration.sql for migration in pending]:
            for statement in queries.statements(text):
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {version + len(pending)}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
