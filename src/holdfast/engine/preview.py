"""Previews: pieces of what a step will return, handed on while the step is at work.

Before the step is on record, its pieces are not. If the process dies, the step is executed again
and may say something else, as models do; and on replay all pieces come when the step's completion
is delivered. So nothing that was made of a piece may be on record before the step: the durable
calls of those who may have read it wait until the step has ended.

Who may have read it are the code that made the preview, the tasks around that, and the tasks that
any of these make while it is open. Not known are tasks beside them that are handed pieces by other
ways, such as a queue between two branches.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.engine.context import Scope, scope
from holdfast.errors import Suspended

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution


class Preview:
    """Made where the pieces are read, before the step begins; outside of runs it does nothing."""

    __slots__ = ("_scope", "_waiting", "is_open")

    def __init__(self) -> None:
        self._scope = scope()
        self._waiting: list[Callable[[], object]] = []
        self.is_open = False
        if self._scope is not None:
            self._scope.frame.run.previews.append(self)

    def begin(self) -> None:
        """A piece is handed on; from any thread."""
        self.is_open = True

    def end(self) -> None:
        """The step has ended, one way or the other. To say so again changes nothing."""
        self.is_open = False
        if self._scope is None:
            return
        previews = self._scope.frame.run.previews
        if self in previews:
            previews.remove(self)
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def then(self, go_on: Callable[[], object]) -> None:
        self._waiting.append(go_on)

    def may_be_read_in(self, where: Scope) -> bool:
        mine = self._scope
        assert mine is not None, "only those of a run are known to it"
        if self in where.after:
            return True
        if where.frame is not mine.frame:
            return False
        is_main = "@" not in where.path[len(where.frame.key) :]
        return is_main or f"{mine.path}/".startswith(f"{where.path}/")


def read_in(where: Scope) -> tuple[Preview, ...]:
    """The open ones of which this code may have read pieces."""
    found = where.frame.run.previews
    return tuple(one for one in found if one.is_open and one.may_be_read_in(where)) if found else ()


def after(previews: tuple[Preview, ...], do: Callable[[], object]) -> None:
    """Does it when all of these have ended, or at once."""
    for one in previews:
        if one.is_open:
            one.then(lambda: after(previews, do))
            return
    do()


def _go_on(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def ended(run: Execution, where: Scope | None) -> None:
    """Returns when this code may make a durable call."""
    previews = read_in(where) if where is not None else ()
    if not previews:
        return
    future: asyncio.Future[None] = run.loop.create_future()
    # It stands for a step of the run: whether that only waits is known.
    run.transparent.add(future)
    run.behind_previews.append(future)
    after(previews, functools.partial(_go_on, future))
    try:
        await future
    finally:
        run.transparent.discard(future)
        run.behind_previews.remove(future)
    if run.closed:
        raise Suspended
