"""SQLite's errors in Holdfast's words: what happened, to which file, and what to do."""

from __future__ import annotations

import sqlite3

from holdfast.errors import StoreCorrupt, StoreError, StoreMoved, StoreUnavailable
from holdfast.store.marks import store_moved

_UNAVAILABLE = {
    sqlite3.SQLITE_FULL: "The disk is full. Nothing was written; free some space and it goes on.",
    sqlite3.SQLITE_IOERR: "The disk does not read or write. Nothing was written; look at the "
    "system's log for the device, and at its free space and quota.",
    sqlite3.SQLITE_READONLY: "The file or its directory is read-only to this process. Give it the "
    "right to write both (SQLite keeps two more files beside the database).",
    sqlite3.SQLITE_PERM: "This process has no right to the file. Give it the right to write.",
    sqlite3.SQLITE_CANTOPEN: "The file cannot be opened. Does its directory exist, and may this "
    "process write there?",
    sqlite3.SQLITE_BUSY: "Another process holds a lock on the file. Trying again helps, unless "
    "that process is stuck.",
    sqlite3.SQLITE_LOCKED: "Another connection of this process holds a lock. Trying again helps.",
    sqlite3.SQLITE_NOMEM: "There is not enough memory.",
}
_CORRUPT = {
    sqlite3.SQLITE_CORRUPT: "The file is damaged. Stop the workers, keep a copy of it, and restore "
    "the last backup.",
    sqlite3.SQLITE_NOTADB: "The file is not a SQLite database. Nothing was changed; is the path "
    "right?",
}


def code_of(error: sqlite3.Error) -> int:
    """The primary result code; 0 if the error did not come from SQLite itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    return code_of(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_moved(error: BaseException) -> bool:
    """Whether a trigger refused a write: there are none but those of a move."""
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_CONSTRAINT_TRIGGER


def moved(db: sqlite3.Connection, path: str) -> StoreMoved:
    """Where to; asked for after the write was undone."""
    state, other = db.execute("SELECT state, other FROM moves").fetchone() or ("", "")
    return store_moved(state, other, path)


def store_error(error: sqlite3.Error, path: str) -> StoreError:
    code = code_of(error)
    where = f"(store {path}; SQLite says: {error})"
    if code in _UNAVAILABLE:
        return StoreUnavailable(f"{_UNAVAILABLE[code]} {where}")
    if code in _CORRUPT:
        return StoreCorrupt(f"{_CORRUPT[code]} {where}")
    return StoreError(f"SQLite refused an operation. {where}")
