"""A step's body, run within the task that called it."""

from __future__ import annotations

import asyncio
import contextvars
import types
from collections.abc import Coroutine, Generator
from typing import Any

from holdfast.engine.context import Scope, current
from holdfast.engine.loop import LoopHooks


@types.coroutine
def in_frame(
    hooks: LoopHooks,
    coro: Coroutine[Any, Any, Any],
    context: contextvars.Context,
    outer: Scope,
    inner: Scope,
) -> Generator[Any, Any, Any]:
    """Runs a step's body within the calling task (a task of its own would cost more than the step),
    but in its own context and frame: what it sets does not leak out, and the loop's handles count
    for it."""
    try:
        awaited = context.run(coro.send, None)
    except StopIteration as stop:
        return stop.value  # it never awaited anything: nobody could have told the difference
    task = asyncio.current_task(hooks.loop)
    assert task is not None
    caller = (
        current.get()
    )  # not always `outer`: a call may be named in one scope, awaited in another
    outer.frame.bodies[task] = task.cancelling()
    current.set(inner)
    if hooks.active is not None:
        hooks.active.move_to(inner.frame)
    error: BaseException | None = None
    try:
        while True:
            error = None
            try:
                yield awaited
            except GeneratorExit:
                context.run(coro.close)
                raise
            except BaseException as thrown:
                error = thrown
            try:
                if error is None:
                    awaited = context.run(coro.send, None)
                else:
                    awaited = context.run(coro.throw, error)
            except StopIteration as stop:
                return stop.value
    finally:
        error = None  # its traceback has this frame
        outer.frame.bodies.pop(task, None)
        # Only in our own task's context: a forgotten coroutine is closed by whoever collects
        # garbage.
        if current.get() is inner:
            current.set(caller)
            if hooks.active is not None:
                hooks.active.move_to(outer.frame)


_CODE: Any = in_frame.__code__


def body_of(awaited: Any) -> Any:
    """The step's body, if that is what a task awaits so."""
    if getattr(awaited, "gi_code", None) is _CODE and awaited.gi_frame is not None:
        return awaited.gi_frame.f_locals.get("coro")
    return None
