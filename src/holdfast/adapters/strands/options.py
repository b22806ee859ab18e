"""What was said to `durable(...)`, and where in a run its calls belong."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from strands.models import Model

import holdfast
from holdfast.adapters import _active
from holdfast.adapters._shared import Place

Messages = list[Any]
OnOverflow = Callable[[Messages], Messages | Awaitable[Messages]]
"""Makes what a model is given shorter."""


Options = _active.Options[Model, Messages]


@dataclass(frozen=True)
class Around:
    """What runs an agent in turn: a graph, a swarm, or a call of it as a tool."""

    place: Place
    name_of: Callable[[object], str]

    async def place_of(self, inner: object) -> Place:
        return await self.place.branch(self.name_of(inner), _here())


async def _here() -> Place:
    return Place()


_around: contextvars.ContextVar[Around | None] = contextvars.ContextVar(
    "holdfast_strands", default=None
)


def around() -> Around | None:
    """None for what a workflow or a tool runs by itself."""
    found = _around.get()
    if found is None or holdfast.current_run() is None or not found.place.is_near:
        return None
    return found


async def within(found: Around, events: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """What makes these events is inside of `found`; who reads them is not."""
    try:
        while True:
            token = _around.set(found)
            try:
                event = await anext(events)
            except StopAsyncIteration:
                return
            finally:
                _around.reset(token)
            yield event
    finally:
        await events.aclose()
