"""What was said to `durable(...)`, and what is running: found by context in whatever it calls."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_framework import BaseChatClient, Message

import holdfast
from holdfast.adapters._shared import Place, Policy

OnOverflow = Callable[[list[Message]], Any]
"""Makes what a model is given shorter."""

OPTIONS = "__holdfast_options__"


@dataclass(frozen=True, kw_only=True)
class Options:
    policy: Policy = field(default_factory=Policy)
    models: Sequence[str | BaseChatClient[Any]] = ()
    on_overflow: OnOverflow | None = None
    approvals: bool = True


@dataclass(frozen=True)
class Active:
    """An agent or a workflow."""

    options: Options
    name: str
    place: Place = field(default_factory=Place)
    asks_itself: bool = False  # an executor, which asks for what its agent needs in its own way


_active: contextvars.ContextVar[Active | None] = contextvars.ContextVar(
    "holdfast.agent_framework", default=None
)


def active() -> Active | None:
    """None outside of what is durable, and of runs."""
    found = _active.get()
    return found if found is not None and holdfast.current_run() is not None else None


@contextlib.contextmanager
def entered(found: Active) -> Iterator[None]:
    token = _active.set(found)
    try:
        yield
    finally:
        _active.reset(token)


def options_of(agent: Any) -> Options | None:
    """None if the agent is to be left alone: outside of runs, and if nobody made it durable. What a
    durable one runs in turn is durable with it."""
    if holdfast.current_run() is None:
        return None
    own: Options | None = agent.__dict__.get(OPTIONS)
    now = active()
    return own or (now.options if now is not None else None)


def place() -> Place:
    """Where the calls of what is running belong."""
    now = active()
    return now.place if now is not None and now.place.is_near else Place()
