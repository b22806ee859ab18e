"""Conversation managers that ask a model: what they make of a conversation is a step.

Strands calls them in the middle of its loop, as plain functions, where nothing can be journaled. So
the call is left, made in a step, and the loop begun again, as Strands would have done.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from typing import Any

from strands.agent.conversation_manager import SummarizingConversationManager
from strands.types.exceptions import ContextWindowOverflowException

from holdfast.adapters._shared import Place, as_step
from holdfast.adapters.strands.model import ContextOverflow, in_step


class ReduceLater(Exception):
    """The conversation is to be made shorter where that can be journaled."""


class _Later:
    def reduce_context(self, agent: Any, e: Exception | None = None, **_: Any) -> None:
        raise ReduceLater from e


@functools.cache
def _later_class(kind: Any) -> type[Any]:
    return type(kind.__name__, (_Later, kind), {"__module__": kind.__module__})


def own_manager(manager: Any) -> Any:
    """A run's own."""
    made = copy.copy(manager)
    if isinstance(manager, SummarizingConversationManager):
        made = object.__new__(_later_class(type(manager)))
        made.__dict__.update(vars(manager))
    return made


async def reduce(agent: Any, place: Place, error: BaseException | None) -> None:
    manager: Any = agent.conversation_manager
    kind: Any = type(manager).__mro__[2]

    def work() -> Any:
        in_step.set(True)
        try:
            kind.reduce_context(manager, agent, e=error)
        except ContextWindowOverflowException as hopeless:
            raise ContextOverflow(str(hopeless)) from hopeless
        return {"messages": agent.messages, "manager": manager.get_state()}

    kept: Any = await place.claim(
        lambda: as_step("reduce_context", lambda: asyncio.to_thread(work))
    )
    agent.messages = kept["messages"]
    manager.restore_from_session(kept["manager"])
