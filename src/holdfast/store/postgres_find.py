"""A filter as SQL: conditions with numbered parameters, nothing pasted in."""

from __future__ import annotations

from typing import Any

from holdfast.types import ENDED, RunFilter


def conditions(which: RunFilter, schema: str) -> tuple[str, list[Any]]:
    """What follows `WHERE TRUE`, and the values it binds."""
    found: list[str] = []
    values: list[Any] = []

    def when(condition: str, value: object) -> None:
        values.append(value)
        found.append(condition.replace("?", f"${len(values)}"))

    if which.status:
        if not which.status & ENDED:
            found.append("r.ended_at IS NULL")  # leads to the index of the runs that are open
        when("r.status = ANY(?::text[])", sorted(status.value for status in which.status))
    if which.workflow is not None:
        when("r.workflow = ?", which.workflow)
    if which.session is not None:
        when("r.session = ?", which.session)
    if which.queue is not None:
        when("r.queue = ?", which.queue)
    if which.id_prefix:
        # Not LIKE: a prefix may hold its wildcards.
        when("starts_with(r.id, ?)", which.id_prefix)
    if which.created_after is not None:
        when("r.created_at > ?", which.created_after)
    if which.created_before is not None:
        when("r.created_at < ?", which.created_before)
    if which.parent is not None:
        when(f'r.parent = (SELECT key FROM "{schema}".runs WHERE id = ?)', which.parent)
    values.append(which.limit)
    order = "DESC" if which.newest_first else "ASC"
    where = "".join(f" AND {condition}" for condition in found)
    return f"{where} ORDER BY r.key {order} LIMIT ${len(values)}", values
