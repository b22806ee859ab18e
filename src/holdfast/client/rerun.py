"""What to forget of a failed run, so that it goes on from the step that failed.

Kept is what had begun before the failure was known, parallel branches included, and what succeeded
inside the failed step. Forgotten are the failure itself, the tries that led to it, and what the
workflow did because of it (its cleaning up): it may do that again. Failures that the workflow dealt
with stay as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast import codec
from holdfast.clock import Clock
from holdfast.engine.child import cancelled
from holdfast.store.base import Store
from holdfast.types import Entry, Kind, RunId, RunRow, Status

_FAILED = (Status.FAILED, Status.CANCELLED)
_ENDINGS = (Kind.END, Kind.CANCEL, Kind.DEADLINE)


async def rerun(store: Store, row: RunRow, clock: Clock) -> None:
    """Lets a run go on, and the failed children that it awaits."""
    journal = await store.journal(row.key)
    children = await store.children(row.key)
    awaited = {child.parent_step: child.id for child in children if child.parent_step}
    drop = entries_to_drop(row, journal, awaited)
    # The children first: the run would be told of their failures at once, and whoever dies on
    # the way can do it again, as the run itself has not gone on.
    for child in children_to_rerun(row, journal, children, drop):
        await rerun(store, child, clock)
    await store.rerun(row.id, row.epoch, clock.now(), drop)


def entries_to_drop(
    row: RunRow, journal: Sequence[Entry], children: Mapping[str, RunId]
) -> list[int]:
    """`children` are the ids of the run's children, by the keys under which it awaits them."""
    causes = [e for e in journal if e.kind in (Kind.CANCEL, Kind.DEADLINE)]
    causes = causes or _fatal_steps(row, journal, children)
    drop = {e.seq for e in journal if e.kind in _ENDINGS}
    for cause in causes:
        drop.update(_with_consequences(cause, journal))
    return sorted(drop)


def children_to_rerun(
    row: RunRow, journal: Sequence[Entry], children: Sequence[RunRow], drop: Sequence[int]
) -> list[RunRow]:
    """The failed children that the run awaits anew: those whose end it forgets, and those that were
    still under way when it ended itself, so that it never heard of their end."""
    if row.status not in _FAILED or row.ended_at is None:
        return []
    ends = {e.key: e for e in journal if e.kind is Kind.CHILD}
    latest = {child.parent_step: child for child in children if child.parent_step}
    found = []
    for key, child in latest.items():
        end = ends.get(key)
        forgotten = end is not None and end.seq in drop
        unheard = end is None and child.ended_at is not None and child.ended_at >= row.ended_at
        if child.status in _FAILED and (forgotten or unheard):
            found.append(child)
    return found


def _fatal_steps(
    row: RunRow, journal: Sequence[Entry], children: Mapping[str, RunId]
) -> list[Entry]:
    """The steps and children whose failure is the run's error, or a part or the cause of it.

    None, if the workflow failed by itself: then everything it did stays as it was.
    """
    failed = [
        e
        for e in journal
        if e.kind in (Kind.STEP, Kind.CHILD) and e.failed and e.key.count("#") == 1
    ]
    latest: dict[str, Entry] = {}  # the workflow may have dealt with an earlier one just like it
    wanted: set[str] = set()
    if row.status is Status.FAILED and row.output:
        wanted.update(_texts(codec.decode_error(row.output)))
    for entry in failed:
        text = next((t for t in _entry_texts(entry, children) if t in wanted), None)
        if text is not None:
            latest[text] = entry
    return list(latest.values())


def _entry_texts(entry: Entry, children: Mapping[str, RunId]) -> list[str]:
    if entry.output:
        return _texts(codec.decode_error(entry.output))
    return _texts(cancelled(children[entry.key])) if entry.key in children else []


def _texts(error: BaseException | None) -> list[str]:
    """An error, what caused it and what it is made of, in words that can be compared."""
    texts: list[str] = []
    while error is not None and len(texts) < 100:
        texts.append(f"{type(error).__qualname__}: {error}")
        for member in getattr(error, "exceptions", ()):
            texts += _texts(member)
        error = error.__cause__
    return texts


def _with_consequences(cause: Entry, journal: Sequence[Entry]) -> set[int]:
    drop = {cause.seq}
    inside = cause.key + "/"
    for entry in journal:
        if entry.kind is Kind.CLAIM:
            continue
        is_try = entry.kind is Kind.ATTEMPT or entry.failed
        of_cause = entry.key == cause.key or entry.key.startswith(inside)
        began = entry.started_at if entry.started_at is not None else entry.at
        if (of_cause and is_try) or (entry.seq > cause.seq and began >= cause.at):
            drop.add(entry.seq)
    return drop
