"""The state of a flow, a dict or a model: what a method changes in it is recorded with it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from holdfast.adapters.crewai import values

_GONE = object()


def items(state: Any) -> dict[str, Any]:
    if isinstance(state, BaseModel):
        return {name: getattr(state, name) for name in type(state).model_fields}
    return dict(state)


def snapshot(state: Any) -> dict[str, Any]:
    return {name: values.plain(value) for name, value in items(state).items()}


def changes(before: dict[str, Any], state: Any) -> tuple[dict[str, Any], list[str]]:
    after = items(state)
    changed = {
        name: value
        for name, value in after.items()
        if before.get(name, _GONE) != values.plain(value)
    }
    return changed, [name for name in before if name not in after]


def restore(state: Any, changed: dict[str, Any], removed: list[str]) -> None:
    if isinstance(state, BaseModel):
        state.__dict__.update(changed)
        return
    state.update(changed)
    for name in removed:
        state.pop(name, None)
