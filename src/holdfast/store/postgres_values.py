"""A batch of operations as the arrays that our functions take, one call for all appends.

Arrays of columns, not of rows: the server unpacks them with unnest, and a row of 15 values costs
the driver less than one composite would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.store.base import Append, ContinueAs, End, MessageWrite, Start, Suspend
from holdfast.store.lanes import stored_key
from holdfast.types import Entry, Kind, NewRun, PromiseRow

Columns = list[Any]


def append_values(appends: Sequence[Append]) -> Columns:
    """What the function `append` takes. No run may occur twice."""
    entries = [entry_values(append, entry) for append in appends for entry in append.entries]
    return [
        [append.run for append in appends],
        [append.epoch for append in appends],
        [append.entries[0].seq if append.entries else 0 for append in appends],
        *_columns(entries, 15),
        *_columns([_then(n, a) for n, a in enumerate(appends, 1) if a.then is not None], 10),
        *_columns([_promise(n, p) for n, a in enumerate(appends, 1) for p in a.promises], 7),
        *_columns([_write(n, w) for n, a in enumerate(appends, 1) for w in a.session], 4),
    ]


def is_plain(append: Append) -> bool:
    """Whether this is one entry and no more: then `append_one` takes it."""
    return (
        len(append.entries) == 1
        and append.then is None
        and not append.promises
        and not append.session
        and append.entries[0].kind is not Kind.REFUSED
    )


def entry_values(append: Append, entry: Entry) -> tuple[Any, ...]:
    return (
        append.run,
        append.epoch,
        entry.seq,
        entry.kind._value_,
        entry.key,
        entry.at,
        entry.position,
        entry.attempt,
        entry.failed,
        entry.digest,
        entry.input,
        entry.output,
        entry.started_at,
        entry.due_at,
        entry.mail,
    )


def _columns(rows: list[tuple[Any, ...]], count: int) -> Columns:
    """A column without values is sent as none: unnest makes as many NULLs of it as are needed."""
    if not rows:
        return [None] * count
    columns = map(list, zip(*rows, strict=True))
    return [None if column.count(None) == len(column) else column for column in columns]


def _then(place: int, append: Append) -> tuple[Any, ...]:
    then, at = append.then, append.at
    match then:
        case End(status=status, output=output):
            return place, "end", at, status.value, None, None, None, None, output, None
        case Suspend(ready_at, seen, reason, status, unwinding):
            how = (ready_at, seen, reason, unwinding)
            return place, "suspend", at, status.value, *how, None, None
        case _:
            assert isinstance(then, ContinueAs)
            return place, "continue", at, None, None, None, None, None, then.input, then.digest


def _promise(place: int, p: PromiseRow) -> tuple[Any, ...]:
    return place, p.name, p.key, p.kind, p.type, p.prompt, p.created_at


def _write(place: int, write: Any) -> tuple[Any, ...]:
    if isinstance(write, MessageWrite):
        return place, write.session, None, write.payload
    return place, write.session, write.key, write.value


def refuse_gaps(append: Append) -> None:
    entries = append.entries
    if entries and entries[-1].seq != entries[0].seq + len(entries) - 1:
        raise ValueError("its sequence numbers have gaps")


def run_values(new: NewRun) -> tuple[Any, ...]:
    """A new run as every function takes it that accepts one."""
    return (
        new.id,
        new.workflow,
        new.version,
        new.queue,
        new.priority,
        new.incarnation,
        new.input,
        new.digest,
        new.created_at,
        new.ready_at,
        new.deadline_at,
        new.while_waiting,
        new.parent,
        new.parent_step,
        new.options,
        stored_key(new.fairness_key),
    )


def start_values(starts: Sequence[Start]) -> Columns:
    """What the function `start` takes: runs that are in no session."""
    rows = [(start.claim_for is not None, *run_values(start.run)) for start in starts]
    return _columns(rows, 17)
