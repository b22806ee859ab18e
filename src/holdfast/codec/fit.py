"""Does a payload fit a description, and what value does plain data stand for?

One walk answers both, so that they cannot disagree: without classes, at a client, it only checks;
with them it also builds. What is tagged by the codec must be of the awaited type; what is plain
JSON is converted. Where a union allows a value as it is, it stays as it is; else its first member
that takes it does.
A complaint means that the value does not fit. No complaint, from a client, does not mean that it
does: a class's own validation happens only where the class is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.codec.build import build, build_union, value_of
from holdfast.codec.classes import EMPTY
from holdfast.codec.pack import TAG, Trouble, shorten
from holdfast.codec.scalars import PARSERS, key_of, may_be, path
from holdfast.codec.shapes import NAMES, Shape, is_pydantic
from holdfast.codec.words import (
    Mismatch,
    WrongChoice,
    article,
    check_limits,
    check_member,
    is_same_class,
    mismatch,
    none_fits,
    shape_of_node,
    shown,
    words,
)

# A recursive union tries its members anew at each level of the value, so that a small one could
# take for ever: this many looks there are, and so many for each of its bytes.
_LOOKS_MAX = 10_000
_LOOKS_PER_BYTE = 30

# What may stand where something wider is awaited, as Python's type checkers see it.
_WIDER: dict[str, frozenset[str]] = {
    "integer": frozenset({"boolean"}),
    "number": frozenset({"integer", "boolean"}),
    "complex": frozenset({"number", "integer", "boolean"}),
    "date": frozenset({"datetime"}),
    "sequence": frozenset({"array", "tuple", "string", "bytes", "range", "set", "frozenset"}),
}
_TEXT = {"type": "string"}
_KINDS = frozenset(NAMES.values()) | PARSERS.keys() | {"error"}
_CLASS_TAGS = frozenset({"data", "model", "enum", "named", "core", "custom"})
_LISTS: dict[str, Callable[[list[Any]], Any]] = {
    "array": list, "sequence": list, "tuple": tuple, "set": set, "frozenset": frozenset
}  # fmt: skip


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
    try:
        Fitter(wanted, len(data)).fit(wanted, node)
    except Trouble as trouble:
        return complaint(trouble)
    return None


def complaint(trouble: Trouble) -> str:
    return f"the {trouble.where()} {trouble.reason}"


class _Endless(Trouble):
    """No member of a union is to be tried any more."""


class Fitter:
    """One walk. Afterwards `changed` says whether plain data was converted."""

    def __init__(self, tree: Any, size: int, shape: Shape | None = None) -> None:
        self._defs: dict[str, Any] = tree.get("defs", {}) if isinstance(tree, dict) else {}
        self._shape = shape
        self._left = _LOOKS_MAX + _LOOKS_PER_BYTE * size
        self.changed = False

    def fit(self, wanted: Any, node: Any, lax: bool = False) -> Any:
        """The value, or a Trouble that says where and why not. `lax`: pydantic will read it."""
        self._left -= 1
        if self._left < 0:
            raise _Endless("takes too long to be compared with its type")
        if not isinstance(wanted, dict) or not wanted.keys() & {"anyOf", "enum", "type"}:
            return self._anything(node)
        if "limits" in wanted:
            check_limits(wanted["limits"], node)
        if "anyOf" in wanted:
            return self._one_of(wanted, node, lax)
        if "enum" in wanted:
            # JSON, not ==: True is no answer where 1 is awaited.
            if json.dumps(node) not in map(json.dumps, wanted["enum"]):
                raise WrongChoice(f"is {shown(node)}, awaited is {words(wanted)}")
            return node
        kind, shape = str(wanted["type"]), shape_of_node(node)
        if isinstance(node, dict) and TAG in node:
            fits = shape == kind or shape in _WIDER.get(kind, ()) or is_same_class(shape, kind)
            if not fits and not lax:
                raise mismatch(wanted, node)
            return self._tagged(wanted, kind, node, lax) if fits else None
        if kind in _LISTS and isinstance(node, list):
            return self._list(wanted, kind, node, lax)
        if kind == "object" and isinstance(node, dict):
            return self._object(wanted, list(node.items()), lax)
        if kind == shape or shape in _WIDER.get(kind, ()):
            if kind == "sequence" and wanted.get("items", _TEXT) != _TEXT:
                raise mismatch(wanted, node)  # a text is a sequence, but of texts
            return self._number(node) if kind == "number" else node
        if lax and (may := may_be(kind, node)) is not None:
            if not may:
                raise mismatch(wanted, node)
            return node
        if kind in PARSERS:
            return self._parse(wanted, kind, node)
        if kind in _KINDS:
            raise mismatch(wanted, node)
        return self._class(wanted, kind, node, lax)

    # What is not a class

    def _anything(self, node: Any) -> Any:
        if self._shape is not None:
            return value_of(node, self._shape.table)
        for tagged in _tagged_nodes(node):
            ref = str(tagged.get("c"))
            if EMPTY.find(ref) is None and ref not in self._defs:
                raise Trouble(
                    f"holds a {ref}, which the awaited type does not lead to: name the class"
                    " there, or call holdfast.register, or give plain data"
                )
        return None

    def _tagged(self, wanted: dict[str, Any], kind: str, node: dict[str, Any], lax: bool) -> Any:
        tag, inner = str(node[TAG]), node.get("v")
        if tag in _LISTS and isinstance(inner, list) and kind in _LISTS:
            return self._list(wanted, tag, inner, lax, plain=False)
        if tag == "dict" and isinstance(inner, list):
            if not all(isinstance(pair, list) and len(pair) == 2 for pair in inner):
                raise Trouble("is a dict that cannot be read")
            return self._object(wanted, inner, lax, plain=False)
        return value_of(node, self._shape.table) if self._shape is not None else None

    def _list(
        self, wanted: dict[str, Any], kind: str, node: list[Any], lax: bool, *, plain: bool = True
    ) -> Any:
        each = wanted.get("each")
        if each is not None and len(each) != len(node):
            raise Trouble(f"has {len(node)} items, awaited are {len(each)}")
        items, found = wanted.get("items"), []
        for index, item in enumerate(node):
            with _At(f"[{index}]"):
                found.append(self.fit(each[index] if each is not None else items, item, lax))
        if plain and _LISTS[kind] is not list:
            self.changed = True
        if self._shape is None or _LISTS[kind] is list:
            return found
        try:
            return _LISTS[kind](found)
        except TypeError as error:
            raise Trouble(f"cannot be a {kind}: {error}") from error

    def _object(
        self, wanted: dict[str, Any], pairs: list[Any], lax: bool, *, plain: bool = True
    ) -> Any:
        keys, items, fields = wanted.get("keys"), wanted.get("items"), wanted.get("fields", {})
        found: dict[Any, Any] = {}
        for key, item in pairs:
            with _At(f"[{shorten(key)}]"):
                value = self.fit(fields.get(key, items) if plain else items, item, lax)
                if plain:
                    key = self._key(keys, key) if keys else key
                elif self._shape is not None:
                    key = value_of(key, self._shape.table)
            found[key if self._shape is not None or plain else len(found)] = value
        for key in wanted.get("required", ()) if plain else ():
            if key not in found:
                raise Trouble(f"lacks the key {key!r}")
        return found

    def _key(self, wanted: Any, text: str) -> Any:
        """A key that the description wants to be something else than a text."""
        try:
            return self.fit(wanted, text)
        except _Endless:
            raise
        except Trouble:
            pass
        for one in wanted.get("anyOf", (wanted,)):
            kind = str(one.get("type"))
            values = self._defs.get(kind, {}).get("values") or one.get("enum", ())
            for value in values:
                if json.dumps(value) == text:
                    return self.fit(one, value)
            try:
                found = key_of(kind, text)
            except (ValueError, KeyError, ArithmeticError):
                continue
            self.changed = True
            return found
        raise Trouble(f"stands under a key that is not {words(wanted)}")

    def _number(self, node: Any) -> Any:
        if type(node) is not int:
            return node
        self.changed = True
        return float(node)  # of 64 bits at most: larger ones are tagged

    def _parse(self, wanted: dict[str, Any], kind: str, node: Any) -> Any:
        parse, words = PARSERS[kind]
        self.changed = True
        try:
            return path(node, wanted.get("k", "Path")) if kind == "path" else parse(node)
        except (ValueError, ArithmeticError):
            raise Trouble(f"is {shown(node)}, awaited is {words}") from None

    # Unions and classes

    def _one_of(self, wanted: dict[str, Any], node: Any, lax: bool) -> Any:
        """Where a value may stay as it is, it does; else the first that takes it decides."""
        members, before = list(wanted["anyOf"]), self.changed
        found: list[Any] = []
        troubles: list[Trouble] = []
        models = self._models(members, node)
        if len(models) > 1:  # pydantic knows best which of its own fits best
            members = [models, *(one for one in members if one not in models)]
        for one in members:
            self.changed = False
            try:
                made = self._union(one, node) if one is models else self.fit(one, node, lax)
            except _Endless:
                raise
            except Trouble as trouble:
                troubles.append(trouble)
                continue
            if not self.changed:
                self.changed = before
                return made
            found.append(made)
        self.changed = before or bool(found)
        if not found:
            raise none_fits(wanted, troubles, node)
        return found[0]

    def _models(self, members: list[Any], node: Any) -> list[Any]:
        if self._shape is None or (isinstance(node, dict) and TAG in node):
            return []
        classes = self._shape.classes
        return [one for one in members if is_pydantic(classes.get(one.get("of", one.get("type"))))]

    def _union(self, models: list[Any], node: Any) -> Any:
        assert self._shape is not None
        self.changed = True
        classes = [self._shape.classes[one.get("of", one["type"])] for one in models]
        return build_union(tuple(classes), node, self._shape.table)

    def _class(self, wanted: dict[str, Any], kind: str, node: Any, lax: bool) -> Any:
        key = wanted.get("of", kind)
        known = self._defs.get(key) or {}
        shape, self.changed = self._shape, True
        cls = shape.classes.get(key) if shape is not None else None
        if cls is not None and is_pydantic(cls):
            return build(cls, kind, node, shape.table)  # type: ignore[union-attr]
        lax = lax or bool(known.get("lax"))
        if "values" in known or "flag" in known:
            check_member(kind, known, node, lax=lax)
        elif "root" in known:
            self.fit(known["root"], node, lax)
        elif "fields" in known:
            node = self._fields(kind, known, node, lax)
        if shape is None:
            return None
        if cls is None:
            raise Trouble(f"cannot be a {kind}: the annotation leads to several of that name")
        return build(cls, kind, node, shape.table, fields="fields" in known)

    def _fields(self, kind: str, known: dict[str, Any], node: Any, lax: bool) -> dict[str, Any]:
        fields = known["fields"]
        if isinstance(node, list) and known.get("ordered") and len(node) <= len(fields):
            node = dict(zip(fields, node, strict=False))
        if not isinstance(node, dict):
            raise Mismatch(
                f"is {article(shape_of_node(node))}, awaited is {article(kind)}, or an object with"
                f" its fields: {', '.join(fields)}"
            )
        if known.get("closed") or not lax:
            for name in node:
                if name not in fields:
                    raise Trouble(
                        f"has a field {shorten(name)}, which {kind} does not have; it has:"
                        f" {', '.join(fields)}"
                    )
        found = {}
        for name, item in node.items():
            with _At(f".{name}"):
                found[name] = self.fit(fields.get(name), item, lax)
        for name in known.get("required", ()):
            if name not in node:
                raise Trouble(f"lacks the field {name!r} of {kind}")
        return found


class _At:
    """Adds a place to the path of a Trouble that passes."""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, Trouble):
            error.path.append(self._place)


def _tagged_nodes(node: Any) -> Iterator[dict[str, Any]]:
    """The instances of classes in a tree."""
    todo = [node]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if str(one.get(TAG)) in _CLASS_TAGS:
                yield one
            todo.extend(one.values())
        elif isinstance(one, list):
            todo.extend(one)
