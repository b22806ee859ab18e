"""Runs that wait for one another: each has its session and awaits a child that has to wait for
another's. Nothing but a cancel, or a timer of theirs, gets them going again."""

from __future__ import annotations

from holdfast.clock import Micros
from holdfast.store.base import Store
from holdfast.types import RunKey, RunRow, Status

RUNS_MAX = 100
"""So many runs are looked at."""


async def circle(store: Store, row: RunRow, now: Micros) -> list[RunRow]:
    """The runs through which this one waits for itself, from this one on; none, if it does not."""
    ways = [[row]]
    seen: set[RunKey] = set()
    while ways and len(seen) < RUNS_MAX:
        way = ways.pop()
        for other in await _waited_for(store, way[-1], now):
            if other.key == row.key:
                return way
            if other.key not in seen:
                seen.add(other.key)
                ways.append([*way, other])
    return []


async def _waited_for(store: Store, row: RunRow, now: Micros) -> list[RunRow]:
    if row.session is not None:
        ahead = await store.ahead(row.key, now)
        if ahead is not None:
            return [ahead]
    if row.status is not Status.WAITING:
        return []
    # One that lost a race goes on, too: its parent waits for something else by now.
    children = [child for child in await store.children(row.key) if not child.status.ended]
    return [child for child in children if f"child run {child.id!r}" in (row.reason or "")]
