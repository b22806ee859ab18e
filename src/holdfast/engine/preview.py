"""Previews: pieces of what a step will return, handed on while the step is at work.

Before the step is on record, its pieces are not. If the process dies, the step is executed again
and may say something else, as models do; and on replay all pieces come when the step's completion
is delivered. So nothing that was made of a piece may be on record before the step: the durable
calls of those who may have read it wait until the step has ended. If they cannot wait for that (the
step fails, or somebody is cancelled who waits), the pieces are kept by themselves, and come first
on replay.

Who may have read a piece are the code that made the preview, the tasks around that, and the tasks
that any of these make while it is open. Not known are tasks beside them that are handed pieces by
other ways, such as a queue between two branches.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast import codec
from holdfast.engine.context import Claim, Scope, scope
from holdfast.errors import HoldfastError, Suspended
from holdfast.types import Entry, Kind

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution

GoOn = Callable[[BaseException | None], object]


class Preview:
    """Made where the pieces are read, before the step begins; outside of runs it does nothing.

    handed_on: gives the pieces so far, as they are to be written to the journal. kept: those that
    are on record by themselves; at the beginning of an earlier life's, to be handed on first.
    """

    __slots__ = (
        "_claim",
        "_handed_on",
        "_scope",
        "_times_kept",
        "_waiting",
        "error",
        "is_open",
        "kept",
    )

    def __init__(self, handed_on: Callable[[], Sequence[Any]]) -> None:
        self._handed_on = handed_on
        self._scope = scope()
        self._waiting: list[GoOn] = []
        self.error: BaseException | None = None  # why nothing must follow from what was read
        self.is_open = False
        self.kept: list[Any] = []
        self._times_kept = 0
        if self._scope is not None:
            self._claim = self._scope.claim("preview")
            self._scope.frame.run.previews.append(self)
            self._find(self._scope)

    def begin(self) -> None:
        """A piece is handed on; from any thread."""
        self.is_open = True

    def cut(self) -> None:
        """Who reads goes on, whatever becomes of the step."""
        if self._scope is not None and not self._scope.frame.run.closed:
            self._keep(self._scope, list(self._handed_on())[len(self.kept) :])
        self._close()

    def end(self, *, returned: bool = True) -> None:
        """The step has ended. returned: what it returned holds the pieces."""
        if not returned:
            self.cut()
        self._close()
        if self.error is None:
            self.forget()

    def forget(self) -> None:
        """Who reads has left, or was told of the error."""
        if self._scope is not None and self in self._scope.frame.run.previews:
            self._scope.frame.run.previews.remove(self)

    def _close(self) -> None:
        self.is_open = False
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on(self.error)

    def _name(self, where: Scope) -> Claim:
        n, claim = self._times_kept, self._claim
        return Claim(where, f"{claim.key}.{n}", claim.name, 0) if n else claim

    def _find(self, where: Scope) -> None:
        journal = where.frame.run.journal
        while (found := journal.find_value(self._name(where))) is not None:
            self.kept += codec.decode(found.output or b"null", what=found.key)
            self._times_kept += 1

    def _keep(self, where: Scope, pieces: list[Any]) -> None:
        if not pieces:
            return
        run = where.frame.run
        try:
            what = f"what was read of {self._claim.key!r} of run {run.row.id!r}"
            output = codec.encode(pieces, what=what)
        except HoldfastError as error:
            self.error = error
            return
        name = self._name(where)
        run.append(
            Entry(0, Kind.VALUE, name.key, run.tick(), position=name.position, output=output)
        )
        self.kept += pieces
        self._times_kept += 1

    def then(self, go_on: GoOn) -> None:
        self._waiting.append(go_on)

    def may_be_read_in(self, where: Scope) -> bool:
        mine = self._scope
        assert mine is not None, "only those of a run are known to it"
        if not self.is_open and self.error is None:
            return False
        if self in where.after:
            return True
        if where.frame is not mine.frame:
            return False
        is_main = "@" not in where.path[len(where.frame.key) :]
        return is_main or f"{mine.path}/".startswith(f"{where.path}/")


class Previews(list[Preview]):
    """Those of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.behind: list[asyncio.Future[None]] = []  # what waits until they have ended


def read_in(where: Scope) -> tuple[Preview, ...]:
    """Those of which this code may have read pieces that are not on record."""
    found = where.frame.run.previews
    return tuple(one for one in found if one.may_be_read_in(where)) if found else ()


def after(previews: tuple[Preview, ...], go_on: GoOn) -> None:
    """Calls it, now or when all of these have ended; with an error, if nothing must follow from
    one of them."""

    def again(error: BaseException | None) -> None:
        if error is not None:
            go_on(error)
        else:
            after(previews, go_on)

    for one in previews:
        if one.is_open:
            one.then(again)
            return
    go_on(next((one.error for one in previews if one.error is not None), None))


async def ended(run: Execution, where: Scope | None) -> None:
    """Returns when this code may make a durable call."""
    previews = read_in(where) if where is not None else ()
    if not previews:
        return
    future: asyncio.Future[None] = run.loop.create_future()
    # It stands for a step of the run: whether that only waits is known.
    run.transparent.add(future)
    run.previews.behind.append(future)
    after(previews, functools.partial(_go_on, future))
    try:
        await future
    except asyncio.CancelledError:
        for one in previews:
            one.cut()
        raise
    finally:
        run.transparent.discard(future)
        run.previews.behind.remove(future)
    if run.closed:
        raise Suspended


def _go_on(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
