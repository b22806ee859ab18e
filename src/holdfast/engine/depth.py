"""How deep calls go: steps within steps, and Python's own stack.

Where Python's recursion limit strikes, it strikes anywhere: bookkeeping that it interrupts would
leave a run, or a whole worker, that neither goes on nor ends. So a durable call begins only while
there is room below it for everything the engine has to do on its behalf; without that it is
refused, before anything was done, by an error that fails the run like any other.
"""

from __future__ import annotations

import sys

from holdfast.errors import TooDeep

STEPS_MAX = 64
"""Steps within steps. Each takes some eight calls of Python's stack, of which there are a thousand,
and every key names all the steps around it."""

ROOM = 100
"""Calls the engine may need below a durable call."""

_SHALLOW = 150
"""A stack of fewer calls surely has that room; to look at a deeper one costs some microseconds."""


def refuse_if_nested_too_deep(body: str, name: str) -> None:
    """TooDeep if the step `name`, called in the body of another, has too many around it."""
    steps = body.count("#")
    if steps >= STEPS_MAX:
        raise TooDeep(
            f"{name!r} was called inside {steps} steps that are nested in one another, and there "
            f"may be no more ({body[:100]}…). Turn the recursion into a loop, let the inner "
            "functions be plain ones, or hand the inner part to a run of its own: "
            "`await holdfast.child(workflow, ...)`."
        )


def refuse_if_too_deep(what: str) -> None:
    """TooDeep if Python's stack has no room for what a durable call involves."""
    try:
        sys._getframe(_SHALLOW)
    except ValueError:
        return
    try:
        _descend(ROOM)
    except RecursionError:
        raise TooDeep(
            f"{what} was called with fewer than {ROOM} calls left of the "
            f"{sys.getrecursionlimit()} that Python allows to be nested. Turn the recursion into a "
            "loop, or hand the inner part to a task or a run of its own before it gets so deep "
            "(`asyncio.create_task`, `holdfast.child`)."
        ) from None


def _descend(calls: int) -> None:
    if calls:
        _descend(calls - 1)
