"""Things read once and then remembered: the time, random numbers, ids, anything."""

from __future__ import annotations

import asyncio
import functools
import random as _random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from holdfast import codec
from holdfast.clock import to_datetime
from holdfast.engine.context import Claim, Scope, named, scope
from holdfast.engine.depth import refuse_if_too_deep
from holdfast.engine.execution import Execution
from holdfast.engine.preview import after, read_in
from holdfast.engine.thread import portal
from holdfast.errors import Suspended
from holdfast.types import Entry, Kind

T = TypeVar("T")


def now() -> datetime:
    """The time (aware, UTC), as it was when this was first executed."""
    where = scope()
    if where is None:
        return datetime.now(UTC)
    run = where.frame.run
    return remembered("now", lambda: to_datetime(run.tick()))


def random() -> float:
    """A random number from 0 to 1, the same on every replay."""
    return remembered("random", _random.random)


def uuid4() -> uuid.UUID:
    """A random uuid, the same on every replay."""
    return remembered("uuid4", uuid.uuid4)


def once(fn: Callable[[], T], /, *, name: str | None = None) -> T:
    """Calls `fn` once in the run's life and remembers what it returned. For quick, local things;
    what takes time or can fail is a step."""
    label = named("value", name or getattr(fn, "__name__", "once"))
    return remembered(label, fn, codec.hints(fn)[1])


def remembered(name: str, make: Callable[[], T], annotation: Any = None) -> T:
    where = scope()
    if where is None:
        return make()
    refuse_if_too_deep(name)
    claim = where.claim(name)
    if asyncio._get_running_loop() is where.frame.run.loop:
        return remembered_as(where, claim, make, annotation)

    async def call(_: object) -> T:
        return remembered_as(where, claim, make, annotation)

    result: T = portal(where, call)
    return result


def _keep(run: Execution, entry: Entry, error: BaseException | None) -> None:
    if error is None and not run.closed:
        run.append(entry)


def remembered_as(where: Scope, claim: Claim, make: Callable[[], T], annotation: Any) -> T:
    run = where.frame.run
    if run.closed:
        raise Suspended
    what = f"{claim.key!r} of run {run.row.id!r}"
    entry = run.journal.find_value(claim)
    if entry is not None:
        if where.frame.is_root:
            run.pass_time(entry.at)
        value: T = codec.decode(entry.output or b"null", annotation, what=what)
        return value
    value = make()
    output = codec.encode(value, annotation=annotation, what=what)
    entry = Entry(0, Kind.VALUE, claim.key, run.tick(), position=claim.position, output=output)
    after(read_in(where), functools.partial(_keep, run, entry))
    if where.frame.is_root:
        run.pass_time(entry.at)
    return value
