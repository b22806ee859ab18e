"""Values to JSON trees; what JSON has no word for becomes an object tagged with "~".

Driven by the value's exact type, so that what comes back has the same types at every level. Not
kept: that two places of a value held one and the same object, attributes of a dataclass that are
in slots but are no fields, and private attributes of pydantic models.
"""

from __future__ import annotations

import binascii
import enum
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from json.encoder import JSONEncoder
from types import NoneType
from typing import Any

from holdfast.codec.classes import Plan, TypeTable, kind_of, late_tag, reference
from holdfast.codec.faults import pack_error
from holdfast.codec.models import model_parts, pack_core

TAG = "~"
LEVELS_MAX = 200
_PATH_PARTS_MAX = 12

# JSON readers elsewhere lose digits beyond this, and Python refuses to print very long ints.
_INT_MAX = 2**63

_ATOMS = frozenset({str, bool, NoneType})
_STR = frozenset({str})
_INTS = frozenset({int})
_FLOATS = frozenset({float})

Packer = Callable[[Any, TypeTable, int], Any]

# Sorts a set's members: any total order does that does not depend on hashes.
_text = JSONEncoder(check_circular=False, separators=(",", ":")).encode


class Trouble(Exception):
    """A value that cannot be packed or unpacked; collects its path on the way out."""

    def __init__(self, reason: str, cure: str = "") -> None:
        super().__init__(reason)
        self.reason, self.cure = reason, cure
        self.path: list[str] = []  # innermost first

    def where(self) -> str:
        parts = self.path[::-1]
        if len(parts) > _PATH_PARTS_MAX:
            parts = [*parts[:_PATH_PARTS_MAX], "…"]
        return "value" + "".join(parts)


def _too_deep(value: object) -> Trouble:
    return Trouble(
        f"is nested more than {LEVELS_MAX} levels deep, or contains itself"
        f" (a {type(value).__qualname__})",
        "Return flatter data.",
    )


def pack(value: object, table: TypeTable, room: int) -> Any:
    return _PACKERS.get(type(value), _pack_object)(value, table, room)


def _pack_as_is(value: object, table: TypeTable, room: int) -> object:
    return value


def _pack_int(value: int, table: TypeTable, room: int) -> Any:
    return value if -_INT_MAX <= value <= _INT_MAX else {TAG: "int", "v": hex(value)}


def _pack_float(value: float, table: TypeTable, room: int) -> Any:
    return value if math.isfinite(value) else {TAG: "float", "v": repr(value)}


def _pack_list(value: list[Any], table: TypeTable, room: int) -> list[Any]:
    if not room:
        raise _too_deep(value)
    kinds = set(map(type, value))
    if kinds <= _ATOMS:
        return value
    # Embeddings and token ids: a pass in C instead of one call for each number. A sum that
    # overflows only means that the slow way is taken.
    if kinds == _FLOATS and math.isfinite(sum(value)):
        return value
    if kinds == _INTS and -_INT_MAX <= min(value) and max(value) <= _INT_MAX:
        return value
    return _pack_items(value, table, room)


def _pack_items(value: Any, table: TypeTable, room: int) -> list[Any]:
    packer, other, room = _PACKERS.get, _pack_object, room - 1
    out: list[Any] = []
    try:
        for item in value:
            out.append(packer(type(item), other)(item, table, room))
    except Trouble as trouble:
        trouble.path.append(f"[{len(out)}]")
        raise
    return out


def _pack_dict(value: dict[Any, Any], table: TypeTable, room: int) -> dict[str, Any]:
    if not room:
        raise _too_deep(value)
    if not _STR.issuperset(map(type, value)) or TAG in value:
        return _pack_pairs(value, table, room)
    if _ATOMS.issuperset(map(type, value.values())):
        return value
    packer, other, room = _PACKERS.get, _pack_object, room - 1
    out = {}
    key = ""
    try:
        for key, item in value.items():
            out[key] = packer(type(item), other)(item, table, room)
    except Trouble as trouble:
        trouble.path.append(f"[{shorten(key)}]")
        raise
    return out


def _pack_pairs(value: dict[Any, Any], table: TypeTable, room: int) -> dict[str, Any]:
    """A dict that JSON cannot hold: keys that are no strings, or one that looks like our tag."""
    pairs: list[Any] = []
    key: Any = None
    try:
        for key, item in value.items():
            pairs.append([pack(key, table, room - 1), pack(item, table, room - 1)])
    except Trouble as trouble:
        trouble.path.append(f"[{shorten(key)}]")
        raise
    return {TAG: "dict", "v": pairs}


def shorten(key: object) -> str:
    try:
        text = repr(key)
    except Exception:
        text = type(key).__qualname__
    return text if len(text) <= 40 else f"{text[:40]}…"


def _pack_tuple(value: tuple[Any, ...], table: TypeTable, room: int) -> dict[str, Any]:
    if not room:
        raise _too_deep(value)
    return {TAG: "tuple", "v": _pack_items(value, table, room)}


def _pack_set(value: Any, table: TypeTable, room: int) -> dict[str, Any]:
    if not room:
        raise _too_deep(value)
    members: list[Any] = []
    for item in value:
        try:
            members.append(pack(item, table, room - 1))
        except Trouble as trouble:
            trouble.path.append(f"{{{shorten(item)}}}")
            raise
    return {TAG: type(value).__name__, "v": sorted(members, key=_text)}


def _pack_bytes(value: bytes | bytearray, table: TypeTable, room: int) -> dict[str, Any]:
    return {TAG: type(value).__name__, "v": binascii.b2a_base64(value, newline=False).decode()}


def _pack_timedelta(value: timedelta, table: TypeTable, room: int) -> dict[str, Any]:
    return {TAG: "timedelta", "v": [value.days, value.seconds, value.microseconds]}


def _pack_date(value: date, table: TypeTable, room: int) -> dict[str, Any]:
    return {TAG: "date", "v": value.isoformat()}


def _pack_time(value: datetime | time, table: TypeTable, room: int) -> dict[str, Any]:
    node: dict[str, Any] = {TAG: type(value).__name__, "v": value.replace(tzinfo=None).isoformat()}
    if value.fold:
        node["fold"] = 1
    zone = value.tzinfo
    if zone is not None:
        node["tz"] = _pack_zone(zone)
    return node


def _pack_zone(zone: Any) -> Any:
    """A ZoneInfo's key, or a fixed offset in microseconds with its name, if it was given one."""
    kind = type(zone)
    if kind.__module__ == "zoneinfo" and zone.key is not None:
        return zone.key
    # pydantic parses offsets into a class of its own, which cannot be told from timezone in use.
    if kind is timezone or (kind.__name__, kind.__module__[:13]) == ("TzInfo", "pydantic_core"):
        offset = zone.utcoffset(None)
        named = kind is timezone and zone.tzname(None) != timezone(offset).tzname(None)
        micros = offset // timedelta(microseconds=1)
        return [micros, zone.tzname(None)] if named else [micros]
    raise Trouble(
        f"has a time zone of type {reference(kind)}", "Use zoneinfo.ZoneInfo or datetime.timezone."
    )


def _pack_complex(value: complex, table: TypeTable, room: int) -> dict[str, Any]:
    return {TAG: "complex", "v": [repr(value.real), repr(value.imag)]}


def _pack_range(value: range, table: TypeTable, room: int) -> dict[str, Any]:
    return {TAG: "range", "v": _pack_items((value.start, value.stop, value.step), table, 1)}


def _pack_late(value: Any, table: TypeTable, room: int) -> dict[str, Any]:
    """A Decimal, UUID or path; a path of this platform is a mere Path on the next one, too."""
    cls = type(value)
    node = {TAG: late_tag(cls), "v": str(value)}
    if node[TAG] == "path":
        node["k"] = cls.__name__ if cls.__name__.startswith("Pure") else "Path"
    return node


def _pack_object(value: Any, table: TypeTable, room: int) -> Any:
    """Everything whose exact type is not in the table of packers."""
    cls = type(value)
    plan = table.plan_of(cls)
    if plan is None:
        if isinstance(value, BaseException):
            return pack_error(value, table, room, pack)
        if late_tag(cls) is not None:
            _PACKERS[cls] = _pack_late
            return _pack_late(value, table, room)
        raise _unknown(cls)
    if not room:
        raise _too_deep(value)
    kind = plan.kind
    if kind == "data":
        return _pack_dataclass(value, plan, table, room)
    if kind == "model":
        return _pack_model(value, plan, table, room)
    if kind == "enum":
        return _pack_enum(value, plan)
    if kind == "error":
        return pack_error(value, table, room, pack)
    if kind == "named":
        return {TAG: "named", "c": plan.ref, "v": _pack_items(value, table, room)}
    try:
        plain = pack_core(value, plan) if kind == "core" else _custom(value, plan)
    except Exception as error:
        raise Trouble(
            f"is a {reference(cls)} that could not be turned into plain data:"
            f" {type(error).__name__}: {error}"
        ) from error
    return {TAG: kind, "c": plan.ref, "v": pack(plain, table, room - 1)}


def _custom(value: object, plan: Plan) -> object:
    assert plan.encode is not None
    return plan.encode(value)


def _pack_enum(value: Any, plan: Plan) -> dict[str, Any]:
    # A combination of flags has no name of its own.
    if isinstance(value, enum.Flag):
        return {TAG: "enum", "c": plan.ref, "n": value.value}
    return {TAG: "enum", "c": plan.ref, "v": value.name}


def _pack_dataclass(value: Any, plan: Plan, table: TypeTable, room: int) -> dict[str, Any]:
    fields = {}
    for name in plan.fields:
        try:
            fields[name] = getattr(value, name)
        except AttributeError:  # init=False, and never set
            continue
    node = {TAG: "data", "c": plan.ref, "v": _pack_attributes(fields, table, room)}
    attributes = getattr(value, "__dict__", None)
    if attributes and len(attributes) > len(fields):
        # What __post_init__ and others added; __init__ will not run again to add it anew.
        extra = {}
        for name, item in attributes.items():
            if name not in plan.fields and name not in plan.skipped and name[:2] != "__":
                extra[name] = item
        if extra:
            node["x"] = _pack_attributes(extra, table, room)
    return node


def _pack_model(value: Any, plan: Plan, table: TypeTable, room: int) -> dict[str, Any]:
    fields, extra, given = model_parts(value, plan)
    node = {
        TAG: "model",
        "c": plan.ref,
        "f": plan.fingerprint,
        "v": _pack_attributes(fields, table, room),
    }
    if extra:
        node["x"] = _pack_attributes(extra, table, room)
    if given != fields.keys():  # API clients do not send what was not given
        node["set"] = sorted(given)
    return node


def _pack_attributes(values: dict[str, Any], table: TypeTable, room: int) -> dict[str, Any]:
    packer, other, room = _PACKERS.get, _pack_object, room - 1
    out = {}
    name = ""
    try:
        for name, item in values.items():
            out[name] = packer(type(item), other)(item, table, room)
    except Trouble as trouble:
        trouble.path.append(f".{name}")
        raise
    return out


def _unknown(cls: type) -> Trouble:
    name = cls.__qualname__
    if kind_of(cls) in ("data", "model", "enum", "named"):
        return Trouble(
            f"is a {reference(cls)}, which the annotation does not lead to",
            f"Name {name} in the annotation, or call holdfast.register({name}),"
            " or return plain data.",
        )
    return Trouble(
        f"is a {reference(cls)}, which has no durable form",
        f"Return plain data or a dataclass, or call"
        f" holdfast.register({name}, encode=..., decode=...).",
    )


_PACKERS: dict[type, Packer] = {
    str: _pack_as_is,
    bool: _pack_as_is,
    NoneType: _pack_as_is,
    int: _pack_int,
    float: _pack_float,
    list: _pack_list,
    dict: _pack_dict,
    tuple: _pack_tuple,
    set: _pack_set,
    frozenset: _pack_set,
    bytes: _pack_bytes,
    bytearray: _pack_bytes,
    datetime: _pack_time,
    time: _pack_time,
    date: _pack_date,
    timedelta: _pack_timedelta,
    complex: _pack_complex,
    range: _pack_range,
}
