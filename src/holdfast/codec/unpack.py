"""JSON trees back to values.

Only classes that the table or the registry lists are built, and no module is imported but a few
of the standard library, by names that stand here.
Not guaranteed: that a value which was tampered with is noticed; that is the journal's business.
"""

from __future__ import annotations

import binascii
import dataclasses
import enum
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

from holdfast.codec.classes import Plan, TypeTable
from holdfast.codec.faults import unpack_error
from holdfast.codec.models import rebuild_model, unpack_core
from holdfast.codec.pack import TAG, Trouble, shorten

Unpacker = Callable[[dict[str, Any], TypeTable], Any]

_NESTED = frozenset({list, dict})


def unpack(node: Any, table: TypeTable) -> Any:
    """The value a JSON tree stands for; lists and dicts are changed in place."""
    if type(node) is list:
        return _unpack_list(node, table)
    if type(node) is not dict:
        return node
    if TAG not in node:
        return _unpack_parts(node, table, "[{!r}]")
    tag = node[TAG]
    unpacker = _UNPACKERS.get(tag) if type(tag) is str else None
    if unpacker is None:
        raise Trouble(
            f"is tagged {shorten(tag)}, which this version of Holdfast does not know",
            "Was it recorded by a newer version?",
        )
    try:
        return unpacker(node, table)
    except (Trouble, RecursionError):
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise Trouble(f"is a {shorten(tag)} that cannot be read: {text}") from error


def _unpack_list(node: Any, table: TypeTable) -> list[Any]:
    if type(node) is not list:
        raise TypeError("a list is missing")
    index = 0
    try:
        for index, item in enumerate(node):
            if type(item) in _NESTED:
                node[index] = unpack(item, table)
    except Trouble as trouble:
        trouble.path.append(f"[{index}]")
        raise
    return node


def _unpack_parts(node: Any, table: TypeTable, at: str = ".{}") -> dict[str, Any]:
    """The values of a JSON object, be they a dict's or attributes."""
    if type(node) is not dict:
        raise TypeError("an object is missing")
    key = ""
    try:
        for key, item in node.items():
            if type(item) in _NESTED:
                node[key] = unpack(item, table)
    except Trouble as trouble:
        trouble.path.append(at.format(key))
        raise
    return node


def _plan(node: dict[str, Any], table: TypeTable, kind: str) -> Plan:
    ref = node["c"]
    plan = table.find(ref) if type(ref) is str else None
    if plan is None or plan.kind != kind:
        raise Trouble(
            f"was recorded as the class {shorten(ref)}, which the annotation does not lead to",
            "Name the class in the annotation, or pass it to holdfast.register"
            " (with name= if it was renamed).",
        )
    return plan


def _unpack_dict(node: dict[str, Any], table: TypeTable) -> dict[Any, Any]:
    out = {}
    for pair in node["v"]:
        key, item = pair
        key = unpack(key, table)
        try:
            out[key] = unpack(item, table)
        except Trouble as trouble:
            trouble.path.append(f"[{shorten(key)}]")
            raise
    return out


def _unpack_base64(node: dict[str, Any], table: TypeTable) -> bytes:
    return binascii.a2b_base64(node["v"], strict_mode=True)


def _unpack_int(node: dict[str, Any], table: TypeTable) -> int:
    return int(node["v"], 16)


def _unpack_float(node: dict[str, Any], table: TypeTable) -> float:
    return {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[node["v"]]


def _unpack_complex(node: dict[str, Any], table: TypeTable) -> complex:
    real, imag = node["v"]
    return complex(float(real), float(imag))


def _unpack_datetime(node: dict[str, Any], table: TypeTable) -> datetime:
    naive = datetime.fromisoformat(node["v"])
    return naive.replace(tzinfo=_zone(node.get("tz")), fold=node.get("fold", 0))


def _unpack_time(node: dict[str, Any], table: TypeTable) -> time:
    naive = time.fromisoformat(node["v"])
    return naive.replace(tzinfo=_zone(node.get("tz")), fold=node.get("fold", 0))


def _unpack_timedelta(node: dict[str, Any], table: TypeTable) -> timedelta:
    days, seconds, microseconds = node["v"]
    return timedelta(days, seconds, microseconds)


# The modules below are slow to load, and many a program never needs them.


def _zone(zone: Any) -> Any:
    if zone is None:
        return None
    if isinstance(zone, str):
        from zoneinfo import ZoneInfo

        return ZoneInfo(zone)
    offset, *name = zone
    if offset == 0 and not name:
        return UTC
    return timezone(timedelta(microseconds=offset), *name)


def _unpack_decimal(node: dict[str, Any], table: TypeTable) -> Any:
    from decimal import Decimal

    return Decimal(node["v"])


def _unpack_uuid(node: dict[str, Any], table: TypeTable) -> Any:
    from uuid import UUID

    return UUID(node["v"])


def _unpack_path(node: dict[str, Any], table: TypeTable) -> Any:
    from pathlib import Path, PurePosixPath, PureWindowsPath

    kinds = {"Path": Path, "PurePosixPath": PurePosixPath, "PureWindowsPath": PureWindowsPath}
    return kinds[node["k"]](node["v"])


def _unpack_enum(node: dict[str, Any], table: TypeTable) -> Any:
    cls: Any = _plan(node, table, "enum").cls
    if issubclass(cls, enum.Flag):
        return cls(node["n"])
    if node["v"] not in cls.__members__:
        raise Trouble(f"is {shorten(node['v'])}, which is no member of {cls.__qualname__} any more")
    return cls.__members__[node["v"]]


def _unpack_named(node: dict[str, Any], table: TypeTable) -> Any:
    cls: Any = _plan(node, table, "named").cls
    items = _unpack_list(node["v"], table)
    defaults = cls._field_defaults
    missing = cls._fields[len(items) :]
    if len(items) > len(cls._fields) or any(name not in defaults for name in missing):
        raise Trouble(
            f"has {len(items)} fields, but {cls.__qualname__} has {len(cls._fields)}",
            "Give new fields a default, and add them at the end.",
        )
    return tuple.__new__(cls, [*items, *(defaults[name] for name in missing)])


def _unpack_dataclass(node: dict[str, Any], table: TypeTable) -> Any:
    """Neither __init__ nor __post_init__ runs: the recorded fields are what they made."""
    plan = _plan(node, table, "data")
    recorded = _unpack_parts(node["v"], table)
    instance: Any = object.__new__(plan.cls)
    for name, field in plan.fields.items():
        if name in recorded:
            item = recorded[name]
        elif field.default is not dataclasses.MISSING:
            item = field.default
        elif field.default_factory is not dataclasses.MISSING:
            item = field.default_factory()
        elif not field.init:
            continue
        else:
            raise Trouble(
                f"lacks the field {name!r} of {plan.cls.__qualname__}, which has no default",
                "Give fields that are added later a default.",
            )
        object.__setattr__(instance, name, item)
    for name, item in _unpack_parts(node.get("x", {}), table).items():
        object.__setattr__(instance, name, item)
    return instance


def _unpack_model(node: dict[str, Any], table: TypeTable) -> Any:
    plan = _plan(node, table, "model")
    fields = _unpack_parts(node["v"], table)
    extra = _unpack_parts(node.get("x", {}), table)
    return rebuild_model(plan, node.get("f"), fields, extra, set(node.get("set", fields)))


def _unpack_core(node: dict[str, Any], table: TypeTable) -> Any:
    return unpack_core(unpack(node["v"], table), _plan(node, table, "core"))


def _unpack_custom(node: dict[str, Any], table: TypeTable) -> Any:
    plan = _plan(node, table, "custom")
    assert plan.decode is not None
    return plan.decode(unpack(node["v"], table))


_UNPACKERS: dict[str, Unpacker] = {
    "int": _unpack_int,
    "float": _unpack_float,
    "complex": _unpack_complex,
    "tuple": lambda node, table: tuple(_unpack_list(node["v"], table)),
    "set": lambda node, table: set(_unpack_list(node["v"], table)),
    "frozenset": lambda node, table: frozenset(_unpack_list(node["v"], table)),
    "dict": _unpack_dict,
    "bytes": _unpack_base64,
    "bytearray": lambda node, table: bytearray(_unpack_base64(node, table)),
    "datetime": _unpack_datetime,
    "date": lambda node, table: date.fromisoformat(node["v"]),
    "time": _unpack_time,
    "timedelta": _unpack_timedelta,
    "decimal": _unpack_decimal,
    "uuid": _unpack_uuid,
    "path": _unpack_path,
    "range": lambda node, table: range(*_unpack_list(node["v"], table)),
    "enum": _unpack_enum,
    "data": _unpack_dataclass,
    "named": _unpack_named,
    "model": _unpack_model,
    "core": _unpack_core,
    "custom": _unpack_custom,
    "error": lambda node, table: unpack_error(node, table, unpack),
}
