"""What was said to `durable(...)`, and the marks of agents that it made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from agents import Model, ModelProvider

from holdfast.adapters import _active
from holdfast.adapters._shared import Place

Items = str | list[Any]
"""What a model is given: a text, or items of the conversation."""

OnOverflow = Callable[[Items], Items | Awaitable[Items]]
"""Makes what a model is given shorter."""

Options = _active.Options[str | Model, Items]


@dataclass(frozen=True)
class Active:
    options: Options
    provider: ModelProvider  # the run's own
    place: Place


_now = _active.Agents[Active]("holdfast_openai_agents")

active, entered, options_of, place = _now.found, _now.entered, _now.options_of, _now.place
