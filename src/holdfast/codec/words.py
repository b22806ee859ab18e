"""What is there and what is awaited, in words: the complaints of fit.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from holdfast.codec.pack import TAG, Trouble
from holdfast.codec.shapes import NAMES

_TAG_NAMES = {"int": "integer", "float": "number", "dict": "object"}
_LISTED_MAX = 20
_AWAITED = ", awaited is "
_LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "gt": ("more than", lambda value, limit: value > limit),
    "ge": ("at least", lambda value, limit: value >= limit),
    "lt": ("less than", lambda value, limit: value < limit),
    "le": ("at most", lambda value, limit: value <= limit),
    "min_length": ("a length of at least", lambda value, limit: len(value) >= limit),
    "max_length": ("a length of at most", lambda value, limit: len(value) <= limit),
}


class Mismatch(Trouble):
    """Something of quite another type than is awaited."""


class WrongChoice(Trouble):
    """None of the values of a Literal: another member of the union may be meant."""


def shape_of_node(node: Any) -> str:
    """What an encoded value is, by the names that descriptions use."""
    if isinstance(node, dict) and TAG in node:
        tag = str(node[TAG])
        return _TAG_NAMES.get(tag, tag if tag == "error" else str(node.get("c", tag)))
    return NAMES.get(type(node), "unknown")


def is_same_class(one: str, other: str) -> bool:
    """A script's `__main__` is another module to its workers, and classes move house. Whether it
    really is that class is seen where the class is."""
    return ":" in one and ":" in other and one.rpartition(":")[2] == other.rpartition(":")[2]


def mismatch(wanted: dict[str, Any], node: Any) -> Mismatch:
    shape = shape_of_node(node)
    there = shown(node) if shape == "string" and wanted.get("type") != "null" else article(shape)
    return Mismatch(f"is {there}, awaited is {words(wanted)}")


def none_fits(wanted: dict[str, Any], troubles: list[Trouble], node: Any) -> Trouble:
    """The complaint that helps most, of those of a union's members."""
    near = [one for one in troubles if one.path or not isinstance(one, Mismatch)]
    near = [one for one in near if not isinstance(one, WrongChoice)] or near
    near.sort(key=lambda one: -len(one.path))
    if near and (len(near) == 1 or len(near[0].path) > len(near[1].path)):
        return near[0]
    if near and all(isinstance(one, WrongChoice) and one.path == near[0].path for one in near):
        return _neither(near)
    return mismatch(wanted, node)


def _neither(troubles: list[Trouble]) -> Trouble:
    """The field that tells a union's members apart says nothing of any of them."""
    there, _, _ = troubles[0].reason.partition(_AWAITED)
    wishes = (one.reason.partition(_AWAITED)[2] for one in troubles)
    found = Trouble(f"{there}{_AWAITED}{' or '.join(dict.fromkeys(wishes))}")
    found.path = troubles[0].path
    return found


def check_limits(limits: dict[str, Any], node: Any) -> None:
    for name, limit in limits.items():
        measured = (str, list) if name.endswith("_length") else (int, float)
        if name not in _LIMITS or not isinstance(node, measured) or type(node) is bool:
            continue
        said, holds = _LIMITS[name]
        if not holds(node, limit):
            raise Trouble(f"is {shown(node)}, awaited is {said} {limit}")


def check_member(kind: str, known: dict[str, Any], node: Any, *, lax: bool) -> None:
    """Is it an enum's member, by value or by name?"""
    if "flag" in known:
        if type(node) is not int:
            raise Trouble(f"is {shown(node)}, awaited is an integer of the flags in {kind}")
        return
    values, names = known["values"], known.get("names", ())
    if json.dumps(node) in map(json.dumps, values) or (node in names and not lax):
        return
    if lax and type(node) in (str, int, float) and str(node) in map(str, values):
        return
    members = listed(values) or listed(names)
    raise Trouble(f"is {shown(node)}, awaited is one of {members} ({kind})")


def awaited(description: str) -> str:
    """What a description asks for, for people who are to give it."""
    try:
        tree = json.loads(description)
    except ValueError:
        return "a value"
    if not isinstance(tree, dict) or not tree.keys() & {"anyOf", "enum", "type"}:
        return "a value"
    said = words(tree)
    known = tree.get("defs", {}).get(tree.get("of", tree.get("type"))) or {}
    if "fields" in known or "fields" in tree:
        fields, required = (known or tree)["fields"], (known or tree).get("required", ())
        names = [name if name in required else f"{name}?" for name in fields]
        more = ["…"] if len(names) > _LISTED_MAX else []
        said += f" ({', '.join(names[:_LISTED_MAX] + more)})"
    elif known.get("values"):
        said += f": {listed(known['values'])}"
    return said


def words(wanted: dict[str, Any]) -> str:
    if "anyOf" in wanted:
        return " or ".join(words(one) for one in wanted["anyOf"])
    if "enum" in wanted:
        return f"one of {listed(wanted['enum'])}"
    return article(str(wanted.get("type", "anything")))


def listed(values: Any) -> str:
    texts = [shown(value) for value in values]
    more = f" and {len(texts) - _LISTED_MAX} more" if len(texts) > _LISTED_MAX else ""
    return ", ".join(texts[:_LISTED_MAX]) + more


def shown(node: Any) -> str:
    text = json.dumps(node, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:80]}…"


def article(name: str) -> str:
    if name == "null":
        return name
    return f"an {name}" if name[:1] in "aeio" else f"a {name}"
