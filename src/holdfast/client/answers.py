"""Answers to promises, looked at before they are accepted: a run cannot tell whoever answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast import codec
from holdfast.codec.fit import check
from holdfast.errors import BadValue, NotEncodable, UnknownPromise
from holdfast.types import HALTED, Mail, MailKind, PromiseRow, RunId, RunRow, Status


def encode_for_run(value: object, what: str) -> bytes:
    """Which classes may occur, the run's code decides: here they need not be registered."""
    try:
        return codec.encode(value, annotation=type(value), what=what)
    except NotEncodable:  # a list of instances, say
        return codec.encode(value, what=what, loose=True)


def check_answer(
    row: RunRow, promises: Sequence[PromiseRow], name: str, payload: bytes, *, early: bool
) -> None:
    """BadValue, if the promise is open and the answer does not fit; UnknownPromise, if the run
    waits for something else."""
    opened = next((promise for promise in promises if promise.name == name), None)
    if opened is not None:
        complaint = check(opened.type, payload)
        if complaint:
            raise BadValue(f"{answer_to(name, row.id)}: {complaint}")
    elif not early and row.status in HALTED | {Status.WAITING}:
        raise UnknownPromise(
            f"run {row.id!r} has no promise {name!r}; open are: {open_names(promises) or 'none'}. "
            "To answer one that it will open later, pass early=True (`--early`)."
        )


def open_names(promises: Iterable[PromiseRow]) -> str:
    return ", ".join(repr(promise.name) for promise in promises if not promise.resolved)


def unasked(promises: Iterable[PromiseRow], mail: Iterable[Mail]) -> list[str]:
    """The names of answers that no promise of the run has asked for, so far."""
    asked = {promise.name for promise in promises}
    return [m.name for m in mail if m.kind is MailKind.PROMISE and m.name not in asked]


def answer_to(name: str, run: RunId) -> str:
    return f"the answer to {name!r} of run {run!r}"
