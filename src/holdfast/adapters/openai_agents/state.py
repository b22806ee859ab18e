"""What a tool changes beside its result: usage, data on its call, and the context of the run.

The context is the user's own object. Of a dict its items count, of other objects their attributes;
each that a tool changed is journaled with the tool's result and set again when that is replayed.
Not kept: values that have no durable form (clients, locks), and what changes outside of tools.
"""

from __future__ import annotations

import contextlib
import copy
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from agents import Usage

from holdfast.adapters._shared import is_plain, is_same
from holdfast.adapters.openai_agents import hooks

_MISSING = object()


class ToolState:
    """Around one call of a tool."""

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx
        self._context = getattr(ctx, "context", None)
        self._usage_before = Usage()
        self._before: dict[str, Any] | None = None  # the first try's, of several

    def types(self) -> tuple[Any, ...]:
        """What the context's fields are said to hold: how they are found again."""
        try:
            return tuple(typing.get_type_hints(type(self._context)).values())
        except Exception:  # annotations that cannot be resolved
            return ()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """The tool has a count of its own, so that others beside it are not taken for its doing."""
        own = getattr(self._ctx, "usage", None)
        if self._before is None:
            self._before = {name: _snapshot(value) for name, value in _items(self._context)}
        if not isinstance(own, Usage):
            yield
            return
        self._usage_before = copy.deepcopy(own)
        self._ctx.usage = copy.deepcopy(own)
        try:
            yield
        finally:
            self._ctx.usage = own

    def changes(self) -> list[Any]:
        """JSON-ready; called in the step, when the tool has returned."""
        usage = getattr(self._ctx, "usage", None)
        spent = _difference(usage, self._usage_before) if isinstance(usage, Usage) else None
        data = getattr(self._ctx, "_custom_data", None)
        before, after = self._before or {}, dict(_items(self._context))
        changed = {
            name: copy.deepcopy(value)
            for name, value in after.items()
            if is_plain(value) and not is_same(before.get(name, _MISSING), value)
        }
        gone = [name for name in before if name not in after]
        return [spent, data, changed or None, gone or None]

    def make_again(self, changes: list[Any]) -> None:
        spent, data, changed, gone = changes
        if spent is not None:
            self._ctx.usage.add(hooks.deserialize_usage(spent))
        if self._before is not None:
            return  # it was executed just now, and others may have changed the context since
        if data is not None:
            self._ctx._custom_data = data
        for name, value in (changed or {}).items():
            _set(self._context, name, value)
        for name in gone or ():
            _drop(self._context, name)


def _items(context: Any) -> list[tuple[str, Any]]:
    if isinstance(context, Mapping):
        return [(name, value) for name, value in context.items() if isinstance(name, str)]
    return list(getattr(context, "__dict__", {}).items())


def _set(context: Any, name: str, value: Any) -> None:
    if isinstance(context, Mapping):
        context[name] = value  # type: ignore[index]
    else:
        object.__setattr__(context, name, value)


def _drop(context: Any, name: str) -> None:
    if isinstance(context, Mapping):
        context.pop(name, None)  # type: ignore[attr-defined]
    else:
        context.__dict__.pop(name, None)


def _snapshot(value: Any) -> Any:
    return copy.deepcopy(value) if is_plain(value) else value


def _difference(after: Usage, before: Usage) -> dict[str, Any] | None:
    if after == before:
        return None
    spent = Usage(
        requests=after.requests - before.requests,
        input_tokens=after.input_tokens - before.input_tokens,
        output_tokens=after.output_tokens - before.output_tokens,
        total_tokens=after.total_tokens - before.total_tokens,
    )
    _subtract(spent, after, before)
    spent.request_usage_entries = _new_entries(after, before)
    return hooks.serialize_usage(spent)  # type: ignore[no-any-return]


def _subtract(spent: Usage, after: Usage, before: Usage) -> None:
    for where in ("input_tokens_details", "output_tokens_details"):
        mine, earlier, later = (getattr(usage, where) for usage in (spent, before, after))
        for name, count in vars(later).items():
            if isinstance(count, int):
                setattr(mine, name, count - (getattr(earlier, name, 0) or 0))


def _new_entries(after: Usage, before: Usage) -> list[Any]:
    return list(after.request_usage_entries[len(before.request_usage_entries) :])
