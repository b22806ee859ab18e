"""What was said to `durable(...)`, and the marks of agents that it made."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agents import Agent, Model, ModelProvider

import holdfast
from holdfast.adapters._shared import Place, Policy

Items = str | list[Any]
"""What a model is given: a text, or items of the conversation."""

OnOverflow = Callable[[Items], Items | Awaitable[Items]]
"""Makes what a model is given shorter."""


@dataclass(frozen=True, kw_only=True)
class Options:
    policy: Policy
    models: Sequence[str | Model] = ()
    on_overflow: OnOverflow | None = None
    approvals: bool = True


@dataclass(frozen=True)
class Active:
    options: Options
    provider: ModelProvider  # the run's own
    place: Place


OPTIONS = "__holdfast_options__"

active: contextvars.ContextVar[Active | None] = contextvars.ContextVar(
    "holdfast_openai_agents", default=None
)
"""Set while a durable agent runs: the agents that it runs in turn are durable, too."""


def options_of(agent: Agent[Any]) -> Options | None:
    """None if the agent is to be left alone: outside of runs, and if nobody made it durable."""
    if holdfast.current_run() is None:
        return None
    options: Options | None = getattr(agent, OPTIONS, None)
    now = active.get()
    return options or (now.options if now is not None else None)


def place() -> Place:
    """Where the calls of the agent that is running belong."""
    now = active.get()
    return now.place if now is not None and now.place.is_near else Place()
