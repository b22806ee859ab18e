"""What a tool of Pydantic AI changes beside its result: the run's usage, and its `deps`.

`deps` is the user's own object. Of a dict its items count, of other objects their attributes: each
that a tool changed is journaled with the tool's result, and set again when that is replayed. Not
kept: what has no form in JSON (clients, locks), and what is changed outside of tools.
"""

from __future__ import annotations

import copy
import typing
from collections.abc import MutableMapping
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.durable_exec import JSON_CODEC
from pydantic_ai.usage import RunUsage
from pydantic_core import PydanticSerializationError, to_jsonable_python

_UNKNOWN = object()


class ToolState:
    """Around one call of a tool."""

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx
        self._shared: RunUsage = ctx.usage
        self._before: dict[str, Any] | None = None  # the first try's, of several
        self._used_before = self._shared

    # In the step

    def begin(self) -> None:
        # Its own, because what tools beside it use must not be counted as this one's.
        self._used_before = copy.deepcopy(self._shared)
        self._ctx.usage = copy.deepcopy(self._shared)
        if self._before is None:
            self._before = {name: _plain(value) for name, value in _items(self._ctx.deps)}

    def changes(self) -> dict[str, Any]:
        """JSON-ready; empty for most tools."""
        found: dict[str, Any] = {}
        used = self._ctx.usage - self._used_before
        if used.has_values():
            found["usage"] = JSON_CODEC.dump(RunUsage, used)
        before = self._before or {}
        after = {name: _plain(value) for name, value in _items(self._ctx.deps)}
        changed = {
            name: value
            for name, value in after.items()
            if value is not _UNKNOWN and before.get(name, _UNKNOWN) != value
        }
        if changed:
            found["deps"] = changed
        return found

    # After it

    def end(self) -> None:
        self._ctx.usage = self._shared

    def make_again(self, done: dict[str, Any]) -> None:
        if "usage" in done:
            self._shared.incr(JSON_CODEC.load(RunUsage, done["usage"]))
        if self._before is not None:
            return  # it was executed just now, and others may have changed things since
        for name, value in done.get("deps", {}).items():
            _set(self._ctx.deps, name, value)


def _items(deps: Any) -> list[tuple[str, Any]]:
    if isinstance(deps, MutableMapping):
        return [(name, value) for name, value in deps.items() if isinstance(name, str)]
    return list(getattr(deps, "__dict__", {}).items())


def _plain(value: Any) -> Any:
    try:
        return to_jsonable_python(value)
    except (PydanticSerializationError, ValueError, TypeError):
        return _UNKNOWN


def _set(deps: Any, name: str, value: Any) -> None:
    if isinstance(deps, MutableMapping):
        deps[name] = value
        return
    try:
        hint = typing.get_type_hints(type(deps)).get(name, Any)
    except Exception:  # annotations that cannot be resolved
        hint = Any
    value = TypeAdapter(hint).validate_python(value)
    current = getattr(deps, name, None)
    # In place, where others may hold the same list.
    if isinstance(current, list) and isinstance(value, list):
        current[:] = value
    elif isinstance(current, dict) and isinstance(value, dict):
        current.clear()
        current.update(value)
    else:
        object.__setattr__(deps, name, value)
