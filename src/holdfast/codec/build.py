"""Instances from plain data, made as their classes want it: by __init__, by validation, by value.

Only for plain data from outside. What was recorded is rebuilt by unpack.py, without running any of
this again.
"""

from __future__ import annotations

import copy
import enum
import json
import sys
import typing
from typing import Any

from holdfast.codec.classes import TypeTable
from holdfast.codec.models import unpack_core
from holdfast.codec.pack import TAG, Trouble
from holdfast.codec.unpack import unpack

_TAG_TEXT = f'"{TAG}"'
_ERRORS_SHOWN_MAX = 3
_UNIONS_MAX = 1000
_unions: dict[tuple[Any, ...], Any] = {}


def value_of(node: Any, table: TypeTable) -> Any:
    """What a part of a tree stands for; the tree stays as it is, others may try it, too."""
    return unpack(copy.deepcopy(node), table) if type(node) in (list, dict) else node


def build(cls: Any, ref: str, node: Any, table: TypeTable, *, fields: bool = False) -> Any:
    """An instance of the class; with `fields`, the node holds the values of its fields."""
    plan = table.plan_of(cls)
    try:
        if plan is not None and plan.kind == "custom":
            assert plan.decode is not None
            return plan.decode(value_of(node, table))
        if plan is not None and plan.kind == "core":
            return unpack_core(value_of(node, table), plan)
        if hasattr(cls, "__pydantic_validator__"):
            return _validated(cls.__pydantic_validator__, node, table, cls)
        if issubclass(cls, enum.Enum):
            return _member(cls, node)
        given = node if fields else value_of(node, table)
        if not isinstance(given, dict):
            raise TypeError(f"awaited is an object with the fields of {cls.__qualname__}")
        return cls(**given)
    except Trouble:
        raise
    except Exception as error:
        raise Trouble(f"is refused by {ref}: {_said(error)}") from error


def build_union(classes: tuple[Any, ...], node: Any, table: TypeTable) -> Any:
    """Whichever of pydantic's classes it takes the plain data for."""
    adapter = _unions.get(classes)
    try:
        if adapter is None:
            if len(_unions) >= _UNIONS_MAX:
                _unions.clear()
            adapter = sys.modules["pydantic"].TypeAdapter(typing.Union[classes])  # noqa: UP007
            _unions[classes] = adapter
        return _validated(adapter, node, table, classes)
    except Trouble:
        raise
    except Exception as error:
        names = " and ".join(cls.__qualname__ for cls in classes)
        raise Trouble(f"is refused by {names}: {_said(error)}") from error


def _validated(validator: Any, node: Any, table: TypeTable, cls: Any) -> Any:
    text = json.dumps(node)
    if _TAG_TEXT in text:
        made = validator.validate_python(value_of(node, table))
    else:  # as JSON: strict models take a text for a datetime only from there
        made = validator.validate_json(text)
    if not isinstance(made, cls):
        raise TypeError(f"validation made a {type(made).__qualname__}")
    return made


def _member(cls: Any, node: Any) -> Any:
    for member in cls:
        if type(member.value) is type(node) and member.value == node:
            return member
    if type(node) is str and node in cls.__members__:
        return cls.__members__[node]
    return cls(node)  # flags together, and what _missing_ knows


def _said(error: Exception) -> str:
    listed: Any = getattr(error, "errors", None)
    if type(error).__name__ != "ValidationError" or listed is None:
        return f"{type(error).__name__}: {error}"
    found = listed(include_url=False, include_context=False, include_input=False)
    said = [": ".join(filter(None, (_place(one["loc"]), one["msg"]))) for one in found]
    more = [f"and {len(said) - _ERRORS_SHOWN_MAX} more"] if len(said) > _ERRORS_SHOWN_MAX else []
    return "; ".join(said[:_ERRORS_SHOWN_MAX] + more)


def _place(parts: Any) -> str:
    return ".".join(map(str, parts))
