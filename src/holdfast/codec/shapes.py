"""Does a value fit an annotation? Asked of values here, and of payloads where the class is unknown.

A complaint means that the value cannot fit; no complaint does not mean that it does: what is not
understood (protocols, callables, a class's fields) passes.
"""

from __future__ import annotations

import collections.abc
import json
import types
import typing
from datetime import date, datetime, time, timedelta
from typing import Any, Literal, TypeVar

from holdfast.codec.classes import EMPTY, kind_of, late_tag, reference, resolve
from holdfast.codec.pack import TAG

# Recursive annotations end somewhere.
_DEPTH_MAX = 8

_NAMES: dict[object, str] = {
    None: "null",
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    complex: "complex",
    str: "string",
    bytes: "bytes",
    bytearray: "bytearray",
    range: "range",
    datetime: "datetime",
    date: "date",
    time: "time",
    timedelta: "timedelta",
    list: "array",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
    dict: "object",
    collections.abc.Mapping: "object",
    collections.abc.MutableMapping: "object",
}

# What may stand where something wider is awaited, as Python's type checkers see it.
_WIDER: dict[str, frozenset[str]] = {
    "integer": frozenset({"boolean"}),
    "number": frozenset({"integer", "boolean"}),
    "complex": frozenset({"number", "integer", "boolean"}),
    "date": frozenset({"datetime"}),
}

_TAG_NAMES = {"int": "integer", "float": "number", "dict": "object"}


def _peel(annotation: Any) -> Any:
    """What an annotation comes down to: without metadata, aliases and names of its own."""
    for _ in range(_DEPTH_MAX):
        origin = typing.get_origin(annotation)
        if origin in (typing.Annotated, typing.Required, typing.NotRequired, typing.Final):
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, TypeVar):
            annotation = annotation.__bound__ or typing.Union[annotation.__constraints__ or Any]  # noqa: UP007
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__") and not isinstance(annotation, type):
            annotation = annotation.__value__
        else:
            return annotation
    return Any


def describe(annotation: object) -> str:
    """The annotation's outer shape as a short JSON text, for processes that lack its classes."""
    return json.dumps(_describe(annotation, _DEPTH_MAX), separators=(",", ":"))


def _describe(annotation: Any, room: int) -> dict[str, Any]:
    annotation = _peel(annotation)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if not room or annotation is Any:
        return {}
    if origin in (typing.Union, types.UnionType):
        members = [_describe(member, room - 1) for member in args]
        return {"anyOf": members} if all(members) else {}
    if origin is Literal:
        plain = all(type(value) in (str, int, bool, type(None)) for value in args)
        return {"enum": list(args)} if plain else {}
    cls = origin or annotation
    if typing.is_typeddict(cls):
        required = sorted(_required_keys(cls))
        return {"type": "object", "required": required} if required else {"type": "object"}
    name = _NAMES.get(cls) if cls is None or isinstance(cls, collections.abc.Hashable) else None
    if name is None:
        return _describe_class(cls)
    described: dict[str, Any] = {"type": name}
    if args and name in ("array", "object", "set", "frozenset"):
        items = _describe(args[-1], room - 1)
        if items:
            described["items"] = items
    return described


def _describe_class(cls: Any) -> dict[str, Any]:
    if not isinstance(cls, type):
        return {}
    tag = late_tag(cls)
    if tag is not None:
        return {"type": tag}
    plan = EMPTY.plan_of(cls)
    if issubclass(cls, BaseException):
        return {"type": "error"}
    if plan is not None:
        return {"type": plan.ref}
    return {"type": reference(cls)} if kind_of(cls) is not None else {}


def check(description: str, data: bytes) -> str | None:
    """Why the encoded value cannot fit what `describe` gave, in words; None: it may fit."""
    try:
        node = json.loads(data)
    except (ValueError, RecursionError):
        return "the data is not JSON"
    try:
        wanted = json.loads(description)
    except (ValueError, RecursionError):
        return None
    return _complaint(wanted, node, "the value", _DEPTH_MAX)


def _complaint(wanted: Any, node: Any, where: str, room: int) -> str | None:
    if not room or not isinstance(wanted, dict) or not wanted.keys() & {"anyOf", "enum", "type"}:
        return None
    if "anyOf" in wanted:
        complaints = [_complaint(one, node, where, room - 1) for one in wanted["anyOf"]]
        if None in complaints:
            return None
        return f"{where} is {_article(_shape(node))}, awaited is {_words(wanted)}"
    if "enum" in wanted:
        # JSON, not ==: True is no answer where 1 is awaited.
        if json.dumps(node) in map(json.dumps, wanted["enum"]):
            return None
        return f"{where} is {json.dumps(node)[:80]}, awaited is {_words(wanted)}"
    kind, shape = wanted.get("type"), _shape(node)
    if shape != kind and shape not in _WIDER.get(str(kind), ()):
        return f"{where} is {_article(shape)}, awaited is {_words(wanted)}"
    tagged = isinstance(node, dict) and TAG in node
    for key in () if tagged else wanted.get("required", ()):
        if key not in node:
            return f"{where} lacks the key {key!r}"
    return _items_complaint(wanted, node.get("v") if tagged else node, where, room)


def _items_complaint(wanted: dict[str, Any], node: Any, where: str, room: int) -> str | None:
    items = wanted.get("items")
    if items is None or not isinstance(node, list | dict):
        return None
    pairs = node.items() if isinstance(node, dict) else enumerate(node)
    for key, item in pairs:
        if wanted["type"] == "object" and isinstance(node, list):  # a dict as pairs
            item = item[1]
        complaint = _complaint(items, item, f"{where}[{key!r}]", room - 1)
        if complaint is not None:
            return complaint
    return None


def _shape(node: Any) -> str:
    """What an encoded value is, by the names that `describe` uses."""
    if isinstance(node, dict) and TAG in node:
        tag = str(node[TAG])
        return _TAG_NAMES.get(tag, tag if tag == "error" else str(node.get("c", tag)))
    return _NAMES.get(type(node), "unknown")


def _words(wanted: dict[str, Any]) -> str:
    if "anyOf" in wanted:
        return " or ".join(_words(one) for one in wanted["anyOf"])
    if "enum" in wanted:
        return "one of " + ", ".join(json.dumps(value) for value in wanted["enum"])
    return _article(str(wanted.get("type", "anything")))


def _article(name: str) -> str:
    if name == "null":
        return name
    return f"an {name}" if name[:1] in "aeio" else f"a {name}"


def misfit(
    annotation: Any, value: object, where: str = "value", room: int = _DEPTH_MAX
) -> str | None:
    """Why a value does not fit an annotation, in words; None: it may fit."""
    annotation = _peel(annotation)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    # A tuple of annotations names classes to encode() and is no type.
    if not room or annotation in (Any, object) or isinstance(annotation, tuple | str):
        return None
    if origin in (typing.Union, types.UnionType):
        if any(misfit(member, value, where, room - 1) is None for member in args):
            return None
        return _mismatch(annotation, value, where)
    if origin is Literal:
        fits = any(type(value) is type(one) and value == one for one in args)
        return None if fits else f"{where} is {value!r:.80}, not one of {args!r}"
    cls = type(None) if annotation is None else origin or annotation
    if typing.is_typeddict(cls):
        return _misfit_typed_dict(cls, value, where, room)
    if not _is_instance(value, cls):
        return _mismatch(annotation, value, where)
    if isinstance(value, dict) and len(args) == 2:
        for key, item in value.items():
            complaint = misfit(args[0], key, f"key {key!r:.40} of {where}", room - 1)
            complaint = complaint or misfit(args[1], item, f"{where}[{key!r:.40}]", room - 1)
            if complaint:
                return complaint
        return None
    if cls is tuple and args and isinstance(value, tuple):
        return _misfit_tuple(annotation, value, where, room)
    if isinstance(value, list | set | frozenset | tuple) and len(args) == 1:
        for index, item in enumerate(value):
            if complaint := misfit(args[0], item, f"{where}[{index}]", room - 1):
                return complaint
    return None


def _is_instance(value: object, cls: Any) -> bool:
    wider: dict[object, Any] = {float: (int, float), complex: (int, float, complex)}
    try:
        return isinstance(value, wider.get(cls, cls))
    except TypeError:  # a protocol, a callable, something newer than we are
        return True


def _misfit_tuple(annotation: Any, value: tuple[Any, ...], where: str, room: int) -> str | None:
    args = typing.get_args(annotation)
    if len(args) == 2 and args[1] is Ellipsis:
        args = (args[0],) * len(value)
    if any(typing.get_origin(arg) is typing.Unpack for arg in args):
        return None
    if len(args) != len(value):
        return f"{where} has {len(value)} items, not {len(args)}"
    for index, (arg, item) in enumerate(zip(args, value, strict=True)):
        if complaint := misfit(arg, item, f"{where}[{index}]", room - 1):
            return complaint
    return None


def _misfit_typed_dict(cls: Any, value: object, where: str, room: int) -> str | None:
    if not isinstance(value, dict):
        return _mismatch(cls, value, where)
    for key in _required_keys(cls):
        if key not in value:
            return f"{where} lacks the key {key!r}"
    for key, annotation in resolve(cls).items():
        if key in value and (
            complaint := misfit(annotation, value[key], f"{where}[{key!r}]", room - 1)
        ):
            return complaint
    return None


def _required_keys(cls: Any) -> set[str]:
    # Where annotations are strings, the class itself does not see NotRequired and Required.
    marks = {key: typing.get_origin(annotation) for key, annotation in resolve(cls).items()}
    required = {key for key in cls.__required_keys__ if marks.get(key) is not typing.NotRequired}
    return required | {key for key, mark in marks.items() if mark is typing.Required}


def _mismatch(annotation: Any, value: object, where: str) -> str:
    wanted = annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
    return f"{where} is of type {type(value).__qualname__}, not {wanted}"
