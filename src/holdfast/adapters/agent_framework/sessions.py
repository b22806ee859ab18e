"""Histories that are kept outside of the session: what is read and written there are steps.

What keeps its messages in the session itself needs none: the session is a part of the run.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

from agent_framework import HistoryProvider, InMemoryHistoryProvider, Message

from holdfast.adapters._shared import as_step
from holdfast.adapters.agent_framework import values
from holdfast.adapters.agent_framework.active import active, place


def install() -> None:
    for name in ("before_run", "after_run"):
        original = getattr(HistoryProvider, name)
        if not hasattr(original, "__wrapped__"):
            setattr(HistoryProvider, name, _entering(original))


def _entering(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def entered(self: HistoryProvider, **named: Any) -> None:
        if active() is not None and not isinstance(self, InMemoryHistoryProvider):
            self = _keeping(self)
        await original(self, **named)

    return entered


def _keeping(provider: Any) -> Any:
    """A copy whose calls are steps."""
    copied = copy.copy(provider)

    async def get_messages(session_id: str | None, **named: Any) -> list[Message]:
        async def work() -> Any:
            return list(await provider.get_messages(session_id, **named))

        name = f"{provider.source_id}.get_messages"
        found: list[Message] = await place().claim(lambda: as_step(name, work, shown=session_id))
        return found

    async def save_messages(session_id: str | None, messages: Any, **named: Any) -> None:
        async def work() -> None:
            await provider.save_messages(session_id, messages, **named)

        shown = {"session": session_id, "messages": values.shown(list(messages))}
        name = f"{provider.source_id}.save_messages"
        await place().claim(lambda: as_step(name, work, shown=shown))

    copied.get_messages, copied.save_messages = get_messages, save_messages
    return copied
