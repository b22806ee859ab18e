"""What a value of an annotation looks like, as plain data: for processes that lack its classes.

A description is a small dialect of JSON Schema. `type` names one of JSON's types, a tag of the
codec, or a class; what is known of classes stands once, under `defs`. What is not understood
(protocols, callables, validators that read the raw value) is described as {}: anything may fit.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import json
import types
import typing
from datetime import date, datetime, time, timedelta
from typing import Any, Literal, TypeVar

from holdfast.codec.classes import (
    EMPTY,
    TypeTable,
    described,
    is_model,
    kind_of,
    late_tag,
    reference,
    resolve,
    spell,
    table_for,
)

# Annotations that are nested deeper, lead to more classes or take more text are cut off there.
_DEPTH_MAX = 16
_CLASSES_MAX = 200
_TEXT_MAX = 256 * 2**10
_CACHED_MAX = 4096

NAMES: dict[object, str] = {
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
    collections.abc.Sequence: "sequence",
    collections.abc.MutableSequence: "sequence",
    collections.abc.Collection: "sequence",
    collections.abc.Iterable: "sequence",
}

_JSON = frozenset({"null", "boolean", "integer", "string", "array", "object"})
_LIMITS = ("gt", "ge", "lt", "le", "min_length", "max_length")
# Metadata of pydantic's that does not change what may be given.
_HARMLESS = frozenset({"AfterValidator", "Strict", "FieldInfo", "MultipleOf"})


class Shape:
    """An annotation as plain data, and the classes that it names."""

    __slots__ = ("classes", "is_json", "table", "text", "tree")

    def __init__(self, annotation: object) -> None:
        writer = _Writer()
        tree = writer.describe(annotation, {}, _DEPTH_MAX)
        if writer.defs:
            tree["defs"] = writer.defs
        text = json.dumps(tree, separators=(",", ":"))
        if len(text) > _TEXT_MAX:
            tree.pop("defs", None)
            text = "{}"
        self.tree, self.text = tree, text
        self.classes: dict[str, Any] = writer.classes
        self.table: TypeTable = table_for(annotation)
        self.is_json = writer.is_json
        """Plain data of this shape is the value: there is nothing to convert."""


def shape_of(annotation: object) -> Shape:
    try:
        found = described.get(annotation)
    except TypeError:  # unhashable, e.g. Annotated[int, []]
        return Shape(annotation)
    if found is None:
        if len(described) >= _CACHED_MAX:
            described.clear()
        found = described[annotation] = Shape(annotation)
    shape: Shape = found
    return shape


def describe(annotation: object) -> str:
    """The annotation as a JSON text that `check` understands."""
    return shape_of(annotation).text


class _Writer:
    def __init__(self) -> None:
        self.defs: dict[str, Any] = {}
        self.classes: dict[str, Any] = {}
        self.is_json = True

    def describe(self, annotation: Any, given: dict[Any, Any], room: int) -> dict[str, Any]:
        """`given` are the arguments of the generic class around it."""
        annotation = _peel(annotation, given)
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if not room or annotation is Any:
            return {}
        if origin in (typing.Union, types.UnionType):
            members = [self.describe(member, given, room - 1) for member in args]
            return {"anyOf": members} if all(members) else {}
        if origin is Literal:
            plain = all(type(value) in (str, int, bool, type(None)) for value in args)
            return {"enum": list(args)} if plain else {}
        cls = origin or annotation
        if typing.is_typeddict(cls):
            return self._typed_dict(cls, _arguments(cls, args, given), room)
        name = NAMES.get(cls) if cls is None or isinstance(cls, collections.abc.Hashable) else None
        if name is None:
            return self._class(cls, args, given, room)
        self.is_json = self.is_json and name in _JSON
        node: dict[str, Any] = {"type": name}
        if name == "tuple" and origin is not None and args[-1:] != (Ellipsis,):
            if not any(typing.get_origin(arg) is typing.Unpack for arg in args):
                node["each"] = [self.describe(arg, given, room - 1) for arg in args]
        elif args and name in ("array", "object", "set", "frozenset", "sequence", "tuple"):
            items = self.describe(args[0 if name == "tuple" else -1], given, room - 1)
            keys = self.describe(args[0], given, room - 1) if name == "object" else {}
            node |= {"items": items} if items else {}
            node |= {"keys": keys} if keys and keys != {"type": "string"} else {}
        return node

    def _typed_dict(self, cls: Any, given: dict[Any, Any], room: int) -> dict[str, Any]:
        required = sorted(_required_keys(cls))
        fields = {
            name: self.describe(annotation, given, room - 1)
            for name, annotation in resolve(cls).items()
        }
        node: dict[str, Any] = {"type": "object", "fields": fields}
        return node | ({"required": required} if required else {})

    def _class(self, cls: Any, args: Any, given: dict[Any, Any], room: int) -> dict[str, Any]:
        if not isinstance(cls, type):
            return {}
        tag = late_tag(cls)
        if tag is not None:
            self.is_json = False
            return {"type": tag, "k": cls.__name__} if tag == "path" else {"type": tag}
        plan = EMPTY.plan_of(cls)
        if issubclass(cls, BaseException):
            self.is_json = False
            return {"type": "error"}
        kind = plan.kind if plan is not None else kind_of(cls)
        if kind is None:
            return {}
        self.is_json = False
        ref = plan.ref if plan is not None else reference(cls)
        given = _arguments(cls, args, given)
        key = f"{ref}[{','.join(map(spell, given.values()))}]" if given else ref
        node = {"type": ref} if key == ref else {"type": ref, "of": key}
        if key not in self.classes:
            self.classes[key] = cls
            if len(self.defs) < _CLASSES_MAX:
                self.defs[key] = {}  # it may lead to itself
                self.defs[key] = self._define(cls, kind, given)
        elif self.classes[key] is not cls:  # two local classes of one name
            self.defs[key] = {}
            self.classes[key] = None
        return node

    def _define(self, cls: Any, kind: str, given: dict[Any, Any]) -> dict[str, Any]:
        if kind == "enum":
            return _enum(cls)
        if is_pydantic(cls):
            try:
                return self._pydantic(cls, given)
            except (AttributeError, TypeError):  # another version of pydantic than we know
                return {}
        if kind == "named":
            hints, defaults = resolve(cls), cls._field_defaults
            fields = {name: hints.get(name, Any) for name in cls._fields}
            required = [name for name in fields if name not in defaults]
        elif kind == "data":
            found = _taken(cls)
            if found is None:
                return {}
            fields, required = found
        else:
            return {}
        node: dict[str, Any] = {
            "fields": {n: self.describe(a, given, _DEPTH_MAX) for n, a in fields.items()},
            "required": required,
        }
        return node | ({"ordered": True} if kind == "named" else {})

    def _pydantic(self, cls: Any, given: dict[Any, Any]) -> dict[str, Any]:
        """What pydantic validates; it takes more than we do, so numbers may be texts: `lax`."""
        raw = _validated_raw(cls)
        config = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", {})
        if raw is None:
            return {}
        by_name = bool(config.get("populate_by_name") or config.get("validate_by_name"))
        by_alias = config.get("validate_by_alias", True)
        infos = cls.model_fields if is_model(cls) else cls.__pydantic_fields__
        fields: dict[str, Any] = {}
        required = []
        closed = config.get("extra") == "forbid"
        for name, info in infos.items():
            field = {} if name in raw or "*" in raw else self._field(info, given)
            if name == "root" and getattr(cls, "__pydantic_root_model__", False):
                return {"root": field, "lax": True}
            alias = info.validation_alias if by_alias else None
            keys = [key for key in (alias, name) if key is not None]
            keys = keys if by_name or alias is None else keys[:1]
            if not all(isinstance(key, str) for key in keys):
                closed = False  # it is to be found along some path
                continue
            fields |= dict.fromkeys(keys, field)
            if info.is_required() and len(keys) == 1:
                required += keys
        node = {"fields": fields, "required": required, "lax": True}
        return node | ({"closed": True} if closed else {})

    def _field(self, info: Any, given: dict[Any, Any]) -> dict[str, Any]:
        limits: dict[str, Any] = {}
        for one in info.metadata:
            found = {name: getattr(one, name) for name in _LIMITS if hasattr(one, name)}
            limits |= {k: v for k, v in found.items() if type(v) in (int, float)}
            name = type(one).__name__
            if not found and name not in _HARMLESS and not name.startswith("_PydanticGeneral"):
                return {}
        node = self.describe(info.annotation, given, _DEPTH_MAX)
        return node | ({"limits": limits} if limits and node else {})


def is_pydantic(cls: Any) -> bool:
    """A model or one of pydantic's dataclasses: it validates what it is given by itself."""
    return hasattr(cls, "__pydantic_validator__")


def _validated_raw(cls: Any) -> set[str] | None:
    """The fields whose validators see what is given as it is; None: all at once do."""
    decorators = cls.__pydantic_decorators__
    for one in (*decorators.model_validators.values(), *decorators.root_validators.values()):
        if one.info.mode != "after":
            return None
    fields: set[str] = set()
    for one in (*decorators.field_validators.values(), *decorators.validators.values()):
        if one.info.mode != "after":
            fields.update(one.info.fields)
    return fields


def _enum(cls: Any) -> dict[str, Any]:
    if issubclass(cls, enum.Flag):
        return {"flag": True}
    if any("_missing_" in vars(base) for base in cls.__mro__ if base.__module__ != "enum"):
        return {}  # it knows more spellings of its members than it tells
    plain = [m.value for m in cls if type(m.value) in (str, int, float, bool, type(None))]
    return {"values": plain, "names": list(cls.__members__)}


def _taken(cls: Any) -> tuple[dict[str, Any], list[str]] | None:
    """What a dataclass's __init__ takes, and what of it has no default; None: one cannot say."""
    try:
        parameters = list(inspect.signature(cls).parameters.values())
    except (TypeError, ValueError):
        return None
    hints = resolve(cls)
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY) for p in parameters):
        return None
    fields = {p.name: hints.get(p.name, Any) for p in parameters}
    for name, annotation in fields.items():
        if isinstance(annotation, dataclasses.InitVar):
            fields[name] = annotation.type
    return fields, [p.name for p in parameters if p.default is p.empty]


def _arguments(cls: Any, args: Any, given: dict[Any, Any]) -> dict[Any, Any]:
    """What the parameters of a generic class stand for."""
    parameters = getattr(cls, "__parameters__", ())
    if not args or len(args) != len(parameters):
        return {}
    return dict(zip(parameters, (_peel(arg, given) for arg in args), strict=True))


def _peel(annotation: Any, given: dict[Any, Any]) -> Any:
    """What an annotation comes down to: without metadata, aliases and names of its own."""
    for _ in range(_DEPTH_MAX):
        origin = typing.get_origin(annotation)
        if origin in (typing.Annotated, typing.Required, typing.NotRequired, typing.Final):
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, TypeVar):
            bound = annotation.__bound__ or typing.Union[annotation.__constraints__ or Any]  # noqa: UP007
            annotation = given.get(annotation, bound)
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__") and not isinstance(annotation, type):
            annotation = annotation.__value__
        else:
            return annotation
    return Any


def _required_keys(cls: Any) -> set[str]:
    # Where annotations are strings, the class itself does not see NotRequired and Required.
    marks = {key: typing.get_origin(annotation) for key, annotation in resolve(cls).items()}
    required = {key for key in cls.__required_keys__ if marks.get(key) is not typing.NotRequired}
    return required | {key for key, mark in marks.items() if mark is typing.Required}
