"""What a task awaits, as far as that can be seen.

Some futures are known to stand for something durable. Others are those of asyncio's and anyio's
primitives (an Event, a queue), of which nobody can tell whether a task of the run sets them or a
socket does; unless it is said who awaits them, by `waits_within`.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

from holdfast.engine.body import body_of

_DEPTH_MAX = 1000
_WAIT: CodeType = getattr(asyncio.tasks, "_wait").__code__  # noqa: B009  it is private
_STEPS_OF_GENERATORS = ("async_generator_asend", "async_generator_athrow", "anext_awaitable")
_PRIMITIVES = ("asyncio", "anyio")

_within: set[CodeType] = set()


def waits_within(function: Callable[..., object] | CodeType) -> None:
    """Says of a coroutine function or async generator, of a framework: what it awaits by asyncio's
    or anyio's own means (an Event, a queue) only tasks of the same run can bring about. A run in
    which all others wait durably may leave memory then. For adapters."""
    _within.add(function if isinstance(function, CodeType) else function.__code__)


def is_clear(task: asyncio.Task[Any], durable: set[Any], tasks: set[asyncio.Task[Any]]) -> bool:
    """Is it blocked in something durable, or in other tasks of its run?"""
    awaited = getattr(task, "_fut_waiter", None)
    if awaited is None:
        return False  # about to run
    if awaited in durable or awaited in tasks:
        return True
    behind: Iterable[Any] = getattr(awaited, "_children", ())
    if not behind:
        chain = list(_chain(task))
        if not chain:
            return False
        if _code(chain[-1]) is not _WAIT:
            return _is_within(chain)
        behind = _waited_for(chain[-1])
    return bool(behind) and all(one in durable or one in tasks or one.done() for one in behind)


def is_signal(task: asyncio.Task[Any], tasks: set[asyncio.Task[Any]]) -> bool:
    """Is it a task of a mere primitive, and awaited beside others by one of which that was said?"""
    if not _within or not all(map(_is_primitive, _chain(task))):
        return False
    chains = (list(_chain(one)) for one in tasks)
    return any(
        task in _waited_for(chain[-1])
        for chain in chains
        if chain and _code(chain[-1]) is _WAIT and _is_within(chain)
    )


def _waited_for(waits: Any) -> Iterable[Any]:
    """The future that is awaited in `asyncio.wait` does not tell for what."""
    found: Iterable[Any] = waits.cr_frame.f_locals.get("fs", ()) if waits.cr_frame else ()
    return found


def _chain(task: asyncio.Task[Any]) -> Iterator[Any]:
    """The coroutines and generators that await one another, up to one of `asyncio.wait`."""
    inner: Any = task.get_coro()
    for _ in range(_DEPTH_MAX):
        if inner is None:
            return
        if _code(inner) is not None:
            yield inner
        if _code(inner) is _WAIT:
            return
        inner = _awaited_by(inner)


def _code(inner: Any) -> CodeType | None:
    found: CodeType | None = getattr(inner, "cr_code", None) or getattr(inner, "ag_code", None)
    return found


def _awaited_by(inner: Any) -> Any:
    if hasattr(inner, "cr_await"):
        return inner.cr_await
    if hasattr(inner, "ag_await"):
        return inner.ag_await
    if type(inner).__name__ in _STEPS_OF_GENERATORS:  # they do not tell of which
        return next((one for one in gc.get_referents(inner) if hasattr(one, "ag_await")), None)
    return body_of(inner)  # a step's is run by what the task awaits


def _is_within(chain: list[Any]) -> bool:
    """Does one wait so of which that was said?"""
    for inner in reversed(chain):
        if _code(inner) in _within:
            return True
        if not _is_primitive(inner):
            return False
    return False


def _is_primitive(inner: Any) -> bool:
    frame = getattr(inner, "cr_frame", None) or getattr(inner, "ag_frame", None)
    module = frame.f_globals.get("__name__", "") if frame is not None else ""
    return module.partition(".")[0] in _PRIMITIVES
