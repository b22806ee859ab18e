"""Snapshots, for code that cannot be replayed: it says itself what it needs to go on.

    state = holdfast.recovered() or first_state
    while not state.done:
        state = await turn(state)
        holdfast.stash(state)

After a crash the body starts from its beginning, `recovered()` gives the last snapshot, and steps
completed since then are replayed. What the code did before the snapshot is forgotten.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import codec
from holdfast.engine.context import Scope, chapter_path
from holdfast.engine.wait import on_loop, required_scope
from holdfast.errors import BadValue, Suspended
from holdfast.types import Kind


def stash(value: object) -> None:
    """Takes a snapshot. Only the workflow's own body may, while no other of its tasks is under
    way."""
    where = required_scope("stash()")
    on_loop(where, lambda: _stash(where, value))


def _stash(where: Scope, value: object) -> None:
    run = where.frame.run
    if run.closed:
        raise Suspended
    if not where.is_main:
        raise BadValue("stash() belongs into the workflow's own body, not into a task or a step")
    own = (run.task, asyncio.current_task())
    if any(task not in own and not task.done() for task in run.tasks):
        raise BadValue("stash() while other tasks of the run are under way would lose their work")
    output = codec.encode(value, what=f"the stash of run {run.row.id!r}", loose=False)
    run.note(Kind.STASH, "", output=output)
    run.journal.turn_page(output)
    if run.session is not None:
        run.session.turn_page()
    where.restart(chapter_path(run.journal.chapter))


def recovered(type: Any = Any) -> Any:
    """The last snapshot of an earlier attempt; None on the first."""
    where = required_scope("recovered()")
    data = where.frame.run.journal.stashed
    if data is None:
        return None
    return codec.decode(data, type, what=f"the stash of run {where.frame.run.row.id!r}")
