"""Promises: values that somebody outside of the run gives; approvals are promises for a
decision."""

from __future__ import annotations

import functools
import types
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from holdfast import codec
from holdfast.engine.context import Scope, named
from holdfast.engine.execution import Execution
from holdfast.engine.preview import after, read_in
from holdfast.engine.wait import FromOutside, on_loop, required_scope
from holdfast.errors import PromiseReused
from holdfast.records import FrozenRecord
from holdfast.types import Kind, PromiseRow

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class Decision(FrozenRecord):
    """The answer to an approval."""

    approved: bool
    by: str | None = None
    comment: str | None = None


codec.register(Decision, name="decision")


class Promise(FromOutside[T]):
    """A value that somebody outside of the run gives: `app.resolve(run_id, name, value)`."""

    _kind = Kind.PROMISE

    def __init__(self, where: Scope, name: str, annotation: Any, kind: Any, prompt: Any) -> None:
        run = where.frame.run
        self.name = self._mail_name = named(kind, name)
        self._claim = where.claim(f"{kind}:{name}")
        self._annotation = annotation
        self._label = f"the {kind} {name!r}"
        self._what = f"the answer to {kind} {name!r}"
        other = run.promises.setdefault(name, self._claim.key)
        if other != self._claim.key:
            raise PromiseReused(
                f"run {run.row.id!r} opened the {kind} {name!r} twice, at {other} and "
                f"{self._claim.key}: an answer to one would be taken for the other's; "
                "give each its own name"
            )
        what = f"the prompt of {kind} {name!r} in run {run.row.id!r}"
        row = PromiseRow(
            run.row.key,
            name,
            self._claim.key,
            kind,
            codec.describe(annotation),
            None if prompt is None else codec.encode(prompt, what=what),
            run.tick(),
        )
        if not run.journal.holds(self._claim):
            after(read_in(where), functools.partial(_announce, run, row))


def _announce(run: Execution, row: PromiseRow, error: BaseException | None) -> None:
    if error is None:
        run.announce(row)


def _make_promise(name: str, annotation: Any, kind: str, prompt: Any) -> Promise[Any]:
    where = required_scope(f"{kind}()")
    return on_loop(where, lambda: Promise(where, name, annotation, kind, prompt))


@overload
def promise(name: str, type: type[T], /, *, prompt: object = None) -> Promise[T]: ...
@overload
def promise(name: str, type: types.UnionType, /, *, prompt: object = None) -> Promise[Any]: ...
@overload
def promise(name: str, /, *, prompt: object = None) -> Promise[Any]: ...
def promise(name: str, type: Any = Any, /, *, prompt: object = None) -> Promise[Any]:
    """A value to be given from outside; `prompt` is what those who could give it are shown. It can
    be given before it is awaited; the first answer stands."""
    return _make_promise(name, type, "promise", prompt)


def approval(name: str, prompt: object = None, /) -> Promise[Decision]:
    """A promise for somebody's decision; `prompt` is what they are shown."""
    return _make_promise(name, Decision, "approval", prompt)
