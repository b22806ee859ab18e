"""Whether threads wait for one another, and in the end for something durable, by their stacks.

Asked of a run whose threads the engine does not know all of. Whoever is known, or was given the
run's context, has to be blocked in a durable call, or to wait without a time-out for the outcome or
the end of such a thread: itself, or with all tasks of an event loop of its own. Threads that have
the run's context in other ways are not seen.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Set
from concurrent.futures.thread import _WorkItem
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from holdfast.engine.awaited import is_clear
from holdfast.engine.context import current

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution

_STACK_MAX = 1000
_LEVELS_MAX = 2

_WAIT = threading.Condition.wait.__code__
_EVENT = threading.Event.wait.__code__
_RESULT = concurrent.futures.Future.result.__code__
_WAIT_FOR_ALL = concurrent.futures.wait.__code__
_AS_COMPLETED = concurrent.futures.as_completed.__code__
_TURN: CodeType = getattr(asyncio.BaseEventLoop, "_run_once").__code__  # noqa: B009  it is private
_JOIN: CodeType = getattr(threading.Thread, "_wait_for_tstate_lock", threading.Thread.join).__code__
_WORK: CodeType = getattr(_WorkItem, "run").__code__  # noqa: B009  it is not typed
_TARGET = threading.Thread.run.__code__


def only_wait(
    run: Execution, blocked: Set[int | None], working: Set[int | None], blocks: CodeType
) -> bool:
    """blocked, working: the threads that the engine has sent work to, by whether they are in a
    durable call. blocks: where threads are in one."""
    stacks = sys._current_frames()
    waiting: set[int] = set()
    others: dict[int, FrameType] = {}
    for ident, stack in stacks.items():
        if ident in blocked:
            waiting.add(ident)
        elif ident in working:
            others[ident] = stack
        elif _carries(stack, run):
            if stack.f_code is blocks and stack.f_locals["box"] in run.portals:
                waiting.add(ident)
            else:
                others[ident] = stack
    return _wait_for(others, waiting, stacks)


def _wait_for(
    others: dict[int, FrameType], waiting: set[int], stacks: Mapping[int, FrameType]
) -> bool:
    """Do all others wait for those that wait, or for one another?"""
    outcomes: set[Any] = set()
    fresh = waiting
    while fresh:
        outcomes.update(fresh)
        for ident in fresh:
            outcomes.update(_outcomes_of(stacks[ident]))
        fresh = {one for one, stack in others.items() if _is_parked(stack, outcomes)}
        others = {one: stack for one, stack in others.items() if one not in fresh}
    return not others


def _is_parked(stack: FrameType, outcomes: set[Any]) -> bool:
    awaited = list(_awaited(stack))
    if not awaited:
        return _is_idle_loop(stack, outcomes)
    return all(one in outcomes for one in awaited)


def _awaited(stack: FrameType) -> Iterable[Any]:
    """What the thread waits for, for as long as that takes: futures, or the end of threads."""
    inside = stack.f_locals
    if stack.f_code is _JOIN:
        return [inside["self"].ident] if inside.get("timeout") in (None, -1) else []
    if stack.f_code is not _WAIT or inside.get("timeout") is not None:
        return []
    if inside.get("waiter") not in inside["self"]._waiters:
        return []  # about to wait, or to go on
    by = stack.f_back
    if by is not None and by.f_code is _RESULT:
        return [by.f_locals["self"]]
    if by is not None and by.f_code is _EVENT and by.f_back is not None:
        by = by.f_back
        if by.f_code is _WAIT_FOR_ALL:
            return [one for one in by.f_locals["fs"] if not one.done()]
        if by.f_code is _AS_COMPLETED:
            return [one for one in by.f_locals["pending"] if not one.done()]
    return []


def _is_idle_loop(stack: FrameType, outcomes: set[Any]) -> bool:
    """Does an event loop wait there, whose tasks all wait for such outcomes, or one another?"""
    turn = stack.f_back
    if turn is None or turn.f_code is not _TURN or turn.f_locals.get("timeout") is not None:
        return False
    loop = turn.f_locals["self"]
    selector = getattr(loop, "_selector", None)
    if selector is None or loop._ready or loop._scheduled or len(selector.get_map()) > 1:
        return False  # about to go on; or sockets may wake it, not only other threads
    told = {one for outcome in outcomes for one in _told(outcome)}
    tasks = asyncio.all_tasks(loop)
    return bool(tasks) and all(is_clear(task, told, tasks) for task in tasks)


def _told(outcome: Any) -> Iterator[Any]:
    """The futures of event loops that get the outcome of a thread."""
    for callback in getattr(outcome, "_done_callbacks", ()):
        inside = getattr(callback, "__closure__", None) or ()
        for name, cell in zip(callback.__code__.co_freevars if inside else (), inside, strict=True):
            if name == "destination":
                yield cell.cell_contents


def _outcomes_of(stack: FrameType) -> Iterator[Any]:
    """The futures for which it works."""
    for given in _given(stack):
        yield getattr(given, "future", None)


def _carries(stack: FrameType, run: Execution) -> bool:
    """Was the thread given a context of the run's?"""
    return any(
        _is_of(one, run)
        for given in _given(stack)
        for one in _flat(vars(given).values(), _LEVELS_MAX)
    )


def _given(stack: FrameType) -> Iterator[Any]:
    """What it was given to do."""
    found: FrameType | None = stack
    for _ in range(_STACK_MAX):
        if found is None:
            return
        if (found.f_code is _WORK or found.f_code is _TARGET) and found.f_locals.get("self"):
            yield found.f_locals["self"]
        found = found.f_back


def _flat(values: Iterable[Any], levels: int) -> Iterator[Any]:
    """A function and its arguments; they are kept differently in each version of Python."""
    for value in values:
        if levels and isinstance(value, tuple):
            yield from _flat(value, levels - 1)
        else:
            yield value


def _is_of(called: Any, run: Execution) -> bool:
    while isinstance(called, functools.partial):
        called = called.func
    context = getattr(called, "__self__", called)
    if not isinstance(context, contextvars.Context):
        return False
    where = context.get(current)
    return where is not None and where.frame.run is run
