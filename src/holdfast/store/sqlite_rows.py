"""SQLite's queries by name, and an entry as it binds it."""

from __future__ import annotations

from typing import Any

from holdfast.store import queries
from holdfast.types import Entry

SQL = queries.load("sqlite")

Row = tuple[Any, ...]

_COPIED_MAX = 16_384


def entry_values(run: int, epoch: int, entry: Entry) -> Row:
    """What `insert_entry` binds. The epoch is the appender's own, whatever the entry says."""
    return (
        run,
        entry.seq,
        entry.kind._value_,
        entry.key,
        entry.at,
        epoch,
        entry.position,
        entry.attempt,
        1 if entry.failed else 0,
        blob(entry.digest),
        blob(entry.input),
        blob(entry.output),
        entry.started_at,
        -1 if entry.due_at is None else entry.due_at,
        -1 if entry.mail is None else entry.mail,
    )


def blob(data: bytes | None) -> bytes | bytearray | None:
    """Python's sqlite3 asks around for an adapter of every `bytes` and every None that it binds, of
    a bytearray it does not. That takes longer than a copy of a few."""
    return bytearray(data) if data is not None and len(data) <= _COPIED_MAX else data
