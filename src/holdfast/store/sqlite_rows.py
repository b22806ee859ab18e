"""SQLite's queries by name, and an entry as it binds it."""

from __future__ import annotations

from typing import Any

from holdfast.store import queries
from holdfast.types import Entry

SQL = queries.load("sqlite")

Row = tuple[Any, ...]


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
        entry.digest,
        entry.input,
        entry.output,
        entry.started_at,
        entry.due_at,
        entry.mail,
    )
