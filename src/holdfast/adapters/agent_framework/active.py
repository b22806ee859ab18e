"""What was said to `durable(...)`, and what is running: found by context in whatever it calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent_framework import AgentSession, BaseChatClient, Message

from holdfast.adapters import _active
from holdfast.adapters._shared import Place

OnOverflow = Callable[[list[Message]], Any]
"""Makes what a model is given shorter."""

Options = _active.Options[str | BaseChatClient[Any], list[Message]]


@dataclass(frozen=True)
class Active:
    """An agent or a workflow."""

    options: Options
    name: str
    place: Place = field(default_factory=Place)
    asks_itself: bool = False  # an executor, which asks for what its agent needs in its own way
    session: AgentSession | None = None


_now = _active.Agents[Active]("holdfast.agent_framework")

active, entered, options_of, place = _now.found, _now.entered, _now.options_of, _now.place
