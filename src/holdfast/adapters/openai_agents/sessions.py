"""The SDK's sessions: what a run reads of a conversation, and adds to it, are steps.

A session is kept outside of the run. Read again on replay, it would hold what the run itself has
added, and the model would be asked something else. What was added when the process died, before it
was on record, is found at the session's end and not added again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import holdfast
from holdfast.adapters._shared import as_step
from holdfast.adapters.openai_agents import wire
from holdfast.adapters.openai_agents.options import place

_METHODS = ("get_items", "add_items", "pop_item", "clear_session", "run_compaction")


def durable_session(session: Any) -> Any:
    """One of the same class, which shares everything with it."""
    if session is None or isinstance(session, _DurableSession):
        return session
    kind: type[Any] = type(session)
    made = object.__new__(_durable_class(kind))  # type: ignore[arg-type]
    made.__dict__ = session.__dict__
    return made


class _DurableSession:
    pass


@functools.cache
def _durable_class(kind: type[Any]) -> type[Any]:
    methods = {name: getattr(kind, name) for name in _METHODS if hasattr(kind, name)}
    found = {name: _as_step(kind, name, method) for name, method in methods.items()}
    return type(kind.__name__, (_DurableSession, kind), {"__module__": kind.__module__, **found})


def _as_step(kind: type[Any], name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)  # the SDK looks at its signature
    async def call(self: Any, *args: Any, **named: Any) -> Any:
        # The original does the work, lest the methods that it calls in turn be steps.
        original = object.__new__(kind)
        original.__dict__ = self.__dict__

        async def work() -> Any:
            if name == "add_items" and await _has_at_end(original, args, named):
                return None
            return wire.plain(await method(original, *args, **named))

        if holdfast.current_run() is None:
            return await method(original, *args, **named)
        shown = args[0] if args else named.get("items")
        given = wire.plain(shown) if name == "add_items" else None
        return await place().claim(lambda: as_step(f"session.{name}", work, shown=given))

    return call


async def _has_at_end(session: Any, args: tuple[Any, ...], named: dict[str, Any]) -> bool:
    items = wire.plain(args[0] if args else named["items"])
    if not items:
        return False
    rest = {key: value for key, value in named.items() if key != "items"}
    return bool(wire.plain(await session.get_items(limit=len(items), **rest)) == items)
