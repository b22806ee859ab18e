"""What threads do for a run.

The engine knows the threads it has sent work to: steps' bodies, `def` workflows, and what a body
gives to an executor. Each says when it is blocked in a durable call. Others it meets only there,
with a copy of the run's context: *strangers*, whose stacks have to be looked at (stacks.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution
    from holdfast.engine.frame import Frame


class Submission:
    """Work that a thread does for a run."""

    __slots__ = ("blocked", "frame", "ident")

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.blocked = False  # in a durable call; known on the event loop, without a gap
        self.ident: int | None = None  # of its thread, from when it has begun

    def do(self, work: Callable[[], Any]) -> Any:
        """In the thread."""
        outer, _here.innermost = _here.innermost, self
        self.ident = threading.get_ident()
        try:
            return work()
        finally:
            _here.innermost = outer


class Submissions(dict[Any, Submission]):
    """Those of a run, by the futures of their outcomes."""

    strangers = 0  # threads that are blocked in a durable call, and belong to none of these


class _Here(threading.local):
    innermost: Submission | None = None


_here = _Here()


def innermost(run: Execution) -> Submission | None:
    """What the calling thread does for the run."""
    found = _here.innermost
    return found if found is not None and found.frame.run is run else None


def next_item(box: SimpleQueue[Any]) -> Any:
    """Here a thread of a run is blocked."""
    return box.get()


def are_at_work(run: Execution) -> bool:
    """Does a thread of the run do anything but wait for something durable?"""
    found = run.submissions
    working = [one for one in found.values() if not one.blocked]
    if not found.strangers or not all(one.frame.blocked for one in working):
        return bool(working)
    if any(one.ident is None for one in working):
        return True  # it has yet to begin
    from holdfast.engine import stacks  # few runs have strangers

    blocked = {one.ident for one in found.values()} - {one.ident for one in working}
    return not stacks.only_wait(run, blocked, {one.ident for one in working}, next_item.__code__)
