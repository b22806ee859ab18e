"""What was said to `durable(...)`, the mark of agents that it was said of, and what is running."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from google.adk.models import BaseLlm
from google.genai import types

from holdfast.adapters import _active
from holdfast.adapters._shared import Place

Contents = list[types.Content]
"""What a model is given: the conversation."""

OnOverflow = Callable[[Contents], Contents | Awaitable[Contents]]
"""Makes what a model is given shorter."""

Options = _active.Options[BaseLlm, Contents]


@dataclass(frozen=True)
class Active:
    options: Options
    place: Place
    listings: dict[tuple[int, str], list[Any]] = field(default_factory=dict)  # of MCP servers


_now = _active.Agents[Active]("holdfast_google_adk")

active, options_of = _now.found, _now.options_of


def enter(now: Active, place: Place | None = None) -> None:
    """For the rest of this task: what ADK calls in it is durable, and belongs to the place."""
    _now.var.set(now if place is None else replace(now, place=place))


def claim(now: Active, make: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
    return now.place.nearest().claim(make)
