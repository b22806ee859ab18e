"""Copies what one store holds into another, whatever kinds they are: what, in which order, how much
at a time.

Rows travel as tuples of the values that both kinds of stores know: integers, texts, bytes, None.
They come in the order of their keys, and a batch is written as a whole, so a copy that was
interrupted goes on behind the largest key it wrote. What is not copied: workers, and answers to
requests. A run that a worker owns arrives as one that was handed back.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol

from holdfast.errors import SchemaMismatch, StoreCorrupt

Value = int | str | bytes | None
Row = tuple[Any, ...]

READ_ROWS_FIRST = 10
READ_ROWS = 100
BATCH_ROWS = 500
BATCH_BYTES = 4 << 20
"""A batch ends with the row that reaches either."""


class Table(NamedTuple):
    name: str
    key: tuple[str, ...]
    counted: bool = False  # its keys are drawn from a counter, and never used again


TABLES = (
    Table("runs", ("key",), counted=True),
    Table("journal", ("run", "seq")),
    Table("inbox", ("id",), counted=True),
    Table("joins", ("id",)),
    Table("promises", ("run", "name")),
    Table("session_state", ("session", "key")),
    Table("session_messages", ("id",), counted=True),
    Table("sessions", ("name",)),
    Table("queues", ("name",)),
    Table("shares", ("queue", "key")),
    Table("limits", ("name",)),
    Table("schedules", ("name",)),
    Table("tombstones", ("id",)),
)
GUARDED = (*(table.name for table in TABLES), "workers")
"""What nobody may change while a store is marked."""

UNSHARED = {"journal": {"id", "uuid"}}
"""Columns that mean something in one kind of store only."""


class Progress(NamedTuple):
    what: str  # a table, or a sentence about the whole
    done: int = 0
    total: int = 0


Report = Callable[[Progress], None]


class End(Protocol):
    """One end of a copy."""

    shown: str  # its url, without a password

    async def columns(self, table: Table) -> list[str]: ...

    async def count(self, table: Table) -> int: ...

    def read(
        self, table: Table, columns: Sequence[str], after: Row | None
    ) -> AsyncGenerator[list[Row], None]:
        """Rows with keys above `after`, in the order of their keys, READ_ROWS at a time or fewer
        (see `rows_to_read`). Texts are ordered by their bytes."""
        ...

    async def last(self, table: Table) -> Row | None:
        """The largest key."""
        ...

    async def write(self, table: Table, columns: Sequence[str], rows: list[Row]) -> None:
        """Adds rows, all or none; those that are there stay as they are."""
        ...

    async def counters(self) -> dict[str, int]:
        """The last key that was drawn, of each table that has a counter."""
        ...

    async def raise_counters(self, counters: dict[str, int]) -> None: ...


async def copy(source: End, target: End, report: Report) -> None:
    """Copies what the target does not have yet."""
    for table in TABLES:
        columns = await shared_columns(source, target, table)
        total = await source.count(table)
        done = await target.count(table)
        report(Progress(table.name, done, total))
        after = await target.last(table)
        async with aclosing(_batches(source, table, columns, after)) as batches:
            async for batch in batches:
                await target.write(table, columns, batch)
                done += len(batch)
                report(Progress(table.name, done, total))
    await target.raise_counters(await source.counters())


async def compare(source: End, target: End, report: Report) -> None:
    """Raises StoreCorrupt unless both hold the same rows."""
    for table in TABLES:
        report(Progress(f"comparing {table.name}"))
        columns = await shared_columns(source, target, table)
        wanted = await digest(source, table, columns)
        found = await digest(target, table, columns)
        if wanted != found:
            raise StoreCorrupt(
                f"The copy of {table.name} in {target.shown} is not the same as in {source.shown}: "
                f"{found[0]} rows instead of {wanted[0]}, or other contents. Was it changed by "
                "hand?"
            )


async def shared_columns(source: End, target: End, table: Table) -> list[str]:
    unshared = UNSHARED.get(table.name, set())
    here = [name for name in await source.columns(table) if name not in unshared]
    there = {name for name in await target.columns(table) if name not in unshared}
    if set(here) != there:
        differing = ", ".join(sorted(set(here) ^ there))
        raise SchemaMismatch(
            f"{source.shown} and {target.shown} have schemas of different versions ({table.name}: "
            f"{differing}): run `holdfast db upgrade` on both."
        )
    return here


async def digest(end: End, table: Table, columns: Sequence[str]) -> tuple[int, int]:
    """The number of rows, and the sum of their digests."""
    count = total = 0
    free = _freeing(table, columns)
    async with aclosing(end.read(table, columns, None)) as chunks:
        async for chunk in chunks:
            count += len(chunk)
            total += sum(_row_digest(free(row)) for row in chunk)
    return count, total % (1 << 128)


async def _batches(
    source: End, table: Table, columns: Sequence[str], after: Row | None
) -> AsyncGenerator[list[Row], None]:
    free = _freeing(table, columns)
    batch: list[Row] = []
    size = 0
    async with aclosing(source.read(table, columns, after)) as chunks:
        async for chunk in chunks:
            for row in chunk:
                batch.append(free(row))
                size += _size(row)
                if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
                    yield batch
                    batch, size = [], 0
    if batch:
        yield batch


def rows_to_read(before: int, chunk: list[Row]) -> int:
    """How many rows to read next, so that also large ones do not fill the memory."""
    size = sum(map(_size, chunk))
    return max(1, min(READ_ROWS, 2 * before, before * BATCH_BYTES // max(1, size)))


def _size(row: Row) -> int:
    return sum(len(value) for value in row if isinstance(value, bytes | str))


def _freeing(table: Table, columns: Sequence[str]) -> Callable[[Row], Row]:
    """Makes of a run that somebody owns one that was handed back."""
    if table.name != "runs":
        return lambda row: row
    owner, status = columns.index("owner"), columns.index("status")
    ready, updated = columns.index("ready_at"), columns.index("updated_at")

    def free(row: Row) -> Row:
        if row[owner] is None:
            return row
        changed = list(row)
        changed[owner], changed[status], changed[ready] = None, "pending", row[updated]
        return tuple(changed)

    return free


def _row_digest(row: Row) -> int:
    found = hashlib.blake2b(digest_size=16)
    for value in row:
        if value is None:
            found.update(b"-")
            continue
        if isinstance(value, bytes):
            kind, data = b"b", value
        elif isinstance(value, str):
            kind, data = b"s", value.encode()
        else:
            kind, data = b"i", str(int(value)).encode()
        found.update(b"%s%d:" % (kind, len(data)))
        found.update(data)
    return int.from_bytes(found.digest(), "big")
