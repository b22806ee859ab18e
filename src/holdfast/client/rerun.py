"""What to forget of a failed run, so that it goes on from the step that failed.

Kept is what had begun before the failure was known, parallel branches included, and what succeeded
inside the failed step. Forgotten are the failure itself, the tries that led to it, and what the
workflow did because of it (its cleaning up): it may do that again. Failures that the workflow dealt
with stay as they were.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import codec
from holdfast.types import Entry, Kind, RunRow

_ENDINGS = (Kind.END, Kind.CANCEL, Kind.DEADLINE)


def entries_to_drop(row: RunRow, journal: Sequence[Entry]) -> list[int]:
    causes = [e for e in journal if e.kind in (Kind.CANCEL, Kind.DEADLINE)]
    causes = causes or _fatal_steps(row, journal)
    drop = {e.seq for e in journal if e.kind in _ENDINGS}
    for cause in causes:
        drop.update(_with_consequences(cause, journal))
    return sorted(drop)


def _fatal_steps(row: RunRow, journal: Sequence[Entry]) -> list[Entry]:
    """The failed steps that made the run fail: those with its very error, else the last one."""
    failed = [e for e in journal if e.kind is Kind.STEP and e.failed and e.key.count("#") == 1]
    if not failed:
        return []
    error = _error(row.output)
    return [e for e in failed if _error(e.output) == error] or failed[-1:]


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


def _error(output: bytes | None) -> tuple[str, str] | None:
    return codec.error_summary(output)[:2] if output else None
