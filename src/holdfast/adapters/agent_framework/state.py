"""What a tool changes beside its result: the state of its session, and what it was given.

Of a dict its items count, of a list all of it, of other objects their attributes. Each that a tool
changed is journaled with the tool's result, and set again when that is replayed. Not kept: values
that have no durable form (clients, locks), and what is changed outside of tools.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from agent_framework import AgentSession, InMemoryHistoryProvider

from holdfast.adapters._shared import is_plain, is_same

_MISSING = object()
_HISTORY = InMemoryHistoryProvider.DEFAULT_SOURCE_ID  # long, and not a tool's business


class ToolState:
    """Around one call of a tool."""

    def __init__(self, context: Any, session: AgentSession | None) -> None:
        """session: that of the agent. A tool that does not ask for a context has none, and may know
        the session all the same."""
        session = getattr(context, "session", None) or session
        self._holders: dict[str, Any] = {}
        if isinstance(session, AgentSession):
            self._holders["session"] = session
            self._holders["state"] = session.state
        for name, value in (getattr(context, "kwargs", None) or {}).items():
            if not isinstance(value, AgentSession) and not isinstance(value, str | bytes | tuple):
                self._holders[f"kwargs.{name}"] = value
        self._before: dict[str, dict[Any, Any]] | None = None  # the first try's, of several

    def begin(self) -> None:
        if self._before is None:
            self._before = {name: _items(holder) for name, holder in self._holders.items()}

    def changes(self) -> dict[str, Any]:
        """Called in the step, when the tool has returned. Empty for most tools."""
        found: dict[str, Any] = {}
        for name, holder in self._holders.items():
            before, after = (self._before or {}).get(name, {}), _items(holder)
            changed = {k: v for k, v in after.items() if not is_same(before.get(k, _MISSING), v)}
            gone = [key for key in before if key not in after]
            if changed or gone:
                found[name] = [changed, gone]
        return found

    def make_again(self, changes: dict[str, Any]) -> None:
        if self._before is not None:
            return  # it was executed just now, and others may have changed things since
        for name, (changed, gone) in changes.items():
            if name in self._holders:
                _change(self._holders[name], changed, gone)


def _items(holder: Any) -> dict[Any, Any]:
    if isinstance(holder, list):
        found: dict[Any, Any] = {"": holder}
    elif isinstance(holder, Mapping):
        found = {k: v for k, v in holder.items() if isinstance(k, str) and k != _HISTORY}
    else:
        found = {k: v for k, v in getattr(holder, "__dict__", {}).items() if k != "state"}
    return {key: copy.deepcopy(value) for key, value in found.items() if is_plain(value)}


def _change(holder: Any, changed: dict[Any, Any], gone: list[Any]) -> None:
    if isinstance(holder, list):
        holder[:] = changed.get("", holder)
        return
    items: Any = holder if isinstance(holder, Mapping) else holder.__dict__
    items.update(changed)
    for key in gone:
        items.pop(key, None)
