"""Moves a store: everything it holds goes to another one, and there is never a second master.

The states are in marks.py. Each step here can be interrupted, and the same command goes on from
there: what was done is seen by the marks and by the rows in the target.
"""

from __future__ import annotations

import secrets
from typing import Protocol

from holdfast.clock import Micros
from holdfast.errors import StoreMoved, StoreUnavailable
from holdfast.store import copying
from holdfast.store.copying import Progress, Report
from holdfast.store.marks import ARRIVING, LEAVING, LEFT, RETURNING, Mark, store_moved
from holdfast.types import WorkerRow


class Movable(copying.End, Protocol):
    """A store that can leave, and arrive."""

    async def exists(self) -> bool:
        """Whether there is a store; it is open then."""
        ...

    async def make(self) -> None:
        """Makes an empty store, unless there is one, and opens it."""
        ...

    async def close(self) -> None: ...

    async def mark(self) -> Mark | None: ...

    async def is_empty(self) -> bool: ...

    async def workers(self) -> list[WorkerRow]:
        """Those that are not known to be dead, and whose lease has not run out."""
        ...

    async def leave(self, mark: Mark, now: Micros) -> None:
        """Marks the store and frees the runs of dead workers. From now on it refuses writes.
        NotFree: a worker lives, or it has a mark."""
        ...

    async def arrive(self, mark: Mark, now: Micros) -> None:
        """Marks the store, unless it has this mark. From now on it takes rows of this move alone.
        NotFree: it holds something, another mark or a living worker."""
        ...

    async def change(self, token: str, before: str, after: str) -> bool:
        """Changes the mark's state; False: it is another one."""
        ...

    async def unmark(self, token: str, state: str, *, emptied: bool = False) -> bool:
        """Takes the mark away, and with `emptied` all rows; False: it is another mark."""
        ...


async def plan(source: Movable, target: Movable) -> dict[str, int]:
    """How many rows of which table a move would find; raises what the move would raise."""
    here = await _source_mark(source, target)
    if await target.exists():
        await _check_target(here, target)
    return {table.name: await source.count(table) for table in copying.TABLES}


async def move(source: Movable, target: Movable, now: Micros, report: Report) -> bool:
    """Moves the store, or goes on with its move; False: it was moved before."""
    here = await _source_mark(source, target)
    if here is not None and here.state == LEFT:
        report(Progress("opening the target"))
        return await target.exists() and await target.unmark(here.token, ARRIVING)
    await target.make()
    await _check_target(here, target)
    here = await _begin(source, here, target, now, report)
    await copying.copy(source, target, report)
    await copying.compare(source, target, report)
    report(Progress("closing the source"))
    if not await source.change(here.token, LEAVING, LEFT):
        raise StoreMoved(f"The move of {source.shown} was finished or taken back by somebody else.")
    report(Progress("opening the target"))
    await target.unmark(here.token, ARRIVING)
    report(Progress("done"))
    return True


async def undo(source: Movable, target: Movable, report: Report) -> None:
    """Takes a move back that is not done: the source is in use again, the target is empty."""
    here = await _opened(source)
    if here is None:
        raise StoreUnavailable(f"{source.shown} is not being moved; there is nothing to undo.")
    if here.state == LEFT:
        raise StoreMoved(
            f"The move of {source.shown} to {here.other} is done and cannot be taken back; move it "
            "from there into a new store."
        )
    if here.other != target.shown or here.state == ARRIVING:
        raise store_moved(here.state, here.other, source.shown)
    # From here on nobody can finish the move any more.
    report(Progress("taking the move back"))
    if here.state == LEAVING and not await source.change(here.token, LEAVING, RETURNING):
        raise StoreMoved(f"The move of {source.shown} was changed by somebody else; look again.")
    report(Progress("emptying the target"))
    if await target.exists():
        await target.unmark(here.token, ARRIVING, emptied=True)
    report(Progress("opening the source"))
    await source.unmark(here.token, RETURNING)


async def _opened(source: Movable) -> Mark | None:
    if not await source.exists():
        raise StoreUnavailable(f"There is no store {source.shown}.")
    return await source.mark()


async def _source_mark(source: Movable, target: Movable) -> Mark | None:
    """Raises an error unless this source can go, or go on, or has gone, to this target."""
    if source.shown == target.shown:
        raise StoreUnavailable(f"{source.shown} cannot be moved to itself.")
    here = await _opened(source)
    if here is None:
        await require_idle(source)
    elif here.state not in (LEAVING, LEFT) or here.other != target.shown:
        raise store_moved(here.state, here.other, source.shown)
    return here


async def _check_target(here: Mark | None, target: Movable) -> None:
    there = await target.mark()
    if there is not None:
        if here is None or there.state != ARRIVING or there.token != here.token:
            raise store_moved(there.state, there.other, target.shown)
    elif here is None or here.state == LEAVING:
        await require_idle(target)
        if not await target.is_empty():
            raise not_empty(target.shown)


async def _begin(
    source: Movable, here: Mark | None, target: Movable, now: Micros, report: Report
) -> Mark:
    is_new = here is None
    if here is None:
        here = Mark(LEAVING, target.shown, secrets.token_hex(16))
        report(Progress("marking the source"))
        await source.leave(here, now)
    report(Progress("marking the target"))
    try:
        await target.arrive(Mark(ARRIVING, source.shown, here.token), now)
    except NotFree:
        if is_new:  # somebody has put something there since we looked
            await source.unmark(here.token, LEAVING)
        raise
    return here


async def require_idle(store: Movable) -> None:
    found = await store.workers()
    if found:
        raise in_use(store.shown, found)


class NotFree(StoreUnavailable):
    """The store is in use or holds data. Nothing was changed."""


def in_use(where: str, workers: list[WorkerRow]) -> NotFree:
    shown = ", ".join(f"{w.id} (pid {w.pid} on {w.host.partition(' ')[0]})" for w in workers[:10])
    return NotFree(
        f"{where} is in use by {len(workers)} worker(s): {shown}. Stop them first, with SIGTERM or "
        "Ctrl-C to `holdfast serve`, `holdfast worker` or your own process. Nothing was changed."
    )


def not_empty(where: str) -> NotFree:
    return NotFree(
        f"{where} holds data; a store is moved into an empty one. Nothing was changed there."
    )


def not_ours(where: str) -> StoreMoved:
    """For a copy whose target has lost its mark."""
    return StoreMoved(
        f"{where} is not the target of this move any more: somebody else finished it or took it "
        "back."
    )
