"""What was said to `durable(...)`, the mark of agents that it was said of, and what is running."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from google.adk.models import BaseLlm
from google.genai import types

import holdfast
from holdfast.adapters._shared import Place, Policy

Contents = list[types.Content]
"""What a model is given: the conversation."""

OnOverflow = Callable[[Contents], Contents | Awaitable[Contents]]
"""Makes what a model is given shorter."""


@dataclass(frozen=True, kw_only=True)
class Options:
    policy: Policy
    models: Sequence[BaseLlm] = ()
    on_overflow: OnOverflow | None = None
    approvals: bool = True


@dataclass(frozen=True)
class Active:
    options: Options
    place: Place
    listings: dict[tuple[int, str], list[Any]] = field(default_factory=dict)  # of MCP servers


OPTIONS = "__holdfast_options__"

_active: contextvars.ContextVar[Active | None] = contextvars.ContextVar(
    "holdfast_google_adk", default=None
)


def enter(now: Active, place: Place | None = None) -> None:
    """For the rest of this task: what ADK calls in it is durable, and belongs to the place."""
    _active.set(now if place is None else replace(now, place=place))


def active() -> Active | None:
    """None outside of runs, and of runners whose agent nobody made durable."""
    return _active.get() if holdfast.current_run() is not None else None


def options_of(node: object) -> Options | None:
    """Of a runner's root; those inside of a durable agent are durable with it."""
    if holdfast.current_run() is None:
        return None
    options: Options | None = getattr(node, OPTIONS, None)
    now = _active.get()
    return options or (now.options if now is not None else None)


def place(now: Active) -> Place:
    """Where the calls of what is running belong."""
    return now.place if now.place.is_near else Place()


def claim(now: Active, make: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
    return place(now).claim(make)
