"""Which classes a payload may name: the registry, and what is reachable from an annotation.

Recorded data names classes by a reference ("module:qualname", or the name given to `register`).
A reference is only ever looked up in these tables; nothing here imports a module or evaluates
recorded text. Not guaranteed: that a class of the same name still means what it meant when the
value was recorded. A changed class is read as well as its defaults allow.
"""

from __future__ import annotations

import binascii
import dataclasses
import enum
import functools
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar, overload

Kind = Literal["data", "model", "enum", "named", "error", "core", "custom"]

T = TypeVar("T", bound=type)

# Annotations made on the fly (one per call) must not pile up for ever.
_TABLES_MAX = 4096
# An annotation that reaches more classes than this is a mistake or an attack.
_REACH_MAX = 10_000

# A dataclass or pydantic model derived from one of these also holds what its fields do not show.
_CONTAINERS = (str, bytes, bytearray, int, float, complex, list, tuple, dict, set, frozenset)

RESERVED_NAMES = frozenset(
    "array boolean bytearray bytes complex data date datetime decimal dict enum error float "
    "frozenset int integer list model named null number object path range set string time "
    "timedelta tuple uuid".split()
)


class Plan:
    """How values of one class are taken apart and rebuilt."""

    __slots__ = (
        "adapter", "cls", "decode", "encode", "fields", "fingerprint", "kind", "ref", "skipped"
    )  # fmt: skip

    def __init__(
        self,
        cls: type,
        kind: Kind,
        ref: str,
        encode: Callable[[Any], object] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> None:
        self.cls, self.kind, self.ref = cls, kind, ref
        self.encode, self.decode = encode, decode
        self.fields: dict[str, Any] = {}
        self.fingerprint = ""
        self.adapter: Any = None  # made at first need: pydantic's TypeAdapter is slow to build
        # Recomputed on demand, so not part of the value.
        self.skipped: frozenset[str] = frozenset()
        if kind == "data":
            self.fields = {field.name: field for field in dataclasses.fields(cls)}
            self.skipped = frozenset(
                name
                for base in cls.__mro__
                for name, member in vars(base).items()
                if isinstance(member, functools.cached_property)
            )
        elif kind == "model":
            self.fields = dict(cls.model_fields)  # type: ignore[attr-defined]
            shape = ";".join(f"{name}:{spell(i.annotation)}" for name, i in self.fields.items())
            self.fingerprint = f"{binascii.crc32(shape.encode(errors='replace')):08x}"


def spell(annotation: Any) -> str:
    """An annotation as text that no version of Python spells differently, as repr() would be."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return spell(args[0])
    if origin in (typing.Union, types.UnionType):
        return "|".join(sorted(map(spell, args)))
    if origin is not None:
        return f"{spell(origin)}[{','.join(map(spell, args))}]"
    return annotation.__qualname__ if isinstance(annotation, type) else repr(annotation)


class TypeTable:
    """The classes that values of one annotation may be made of."""

    __slots__ = ("_by_name", "_by_ref", "plans")

    def __init__(self, plans: dict[type, Plan]) -> None:
        self.plans = plans
        self._by_ref = {reference(cls): plan for cls, plan in plans.items()}
        self._by_name: dict[str, list[Plan]] = {}
        for cls, plan in plans.items():
            self._by_name.setdefault(cls.__qualname__, []).append(plan)

    def plan_of(self, cls: type) -> Plan | None:
        return _registered.get(cls) or self.plans.get(cls) or _reached().plans.get(cls)

    def find(self, ref: str) -> Plan | None:
        plan = self._by_ref.get(ref) or _by_name.get(ref) or _reached()._by_ref.get(ref)
        if plan is not None:
            return plan
        # A script's `__main__` is a module of another name to its workers, and classes move house:
        # inside one annotation a unique qualified name is proof enough, in the registry it is not.
        module, _, qualname = ref.rpartition(":")
        found = self._by_name.get(qualname, [])
        if not found:
            found = [
                plan
                for plan in _reached()._by_name.get(qualname, [])
                if "__main__" in (module, plan.cls.__module__)
            ]
        return found[0] if len(found) == 1 else None


class LooseTable(TypeTable):
    """Every class that has a form at all, for data that is compared and shown but never rebuilt."""

    __slots__ = ()

    def plan_of(self, cls: type) -> Plan | None:
        plan = super().plan_of(cls)
        if plan is None and (kind := kind_of(cls)) not in (None, "core"):
            if len(self.plans) >= _TABLES_MAX:
                self.plans.clear()
            plan = self.plans[cls] = Plan(cls, kind, reference(cls))
        return plan


def reference(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def late_tag(cls: type) -> str | None:
    """The tag of a class whose module is slow to load: a value of one proves that it is loaded."""
    modules = sys.modules
    if cls is getattr(modules.get("decimal"), "Decimal", None):
        return "decimal"
    if cls is getattr(modules.get("uuid"), "UUID", None):
        return "uuid"
    if cls.__module__.partition(".")[0] == "pathlib":  # so not a subclass made elsewhere
        return "path" if issubclass(cls, modules["pathlib"].PurePath) else None
    return None


def is_model(cls: type) -> bool:
    """Is this a pydantic model? Asked without importing pydantic."""
    return hasattr(cls, "__pydantic_validator__") and hasattr(cls, "model_fields")


def kind_of(cls: type) -> Kind | None:
    if issubclass(cls, enum.Enum):
        return "enum"
    if issubclass(cls, BaseException):
        return "error"
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return "named"
    if issubclass(cls, _CONTAINERS):
        return None
    if is_model(cls):
        return "model"
    if dataclasses.is_dataclass(cls):
        return "data"
    return "core" if hasattr(cls, "__get_pydantic_core_schema__") else None


_registered: dict[type, Plan] = {}
_by_name: dict[str, Plan] = {}
_tables: dict[object, TypeTable] = {}
_reach: list[TypeTable] = []  # at most one: what the registered classes' fields lead to
described: dict[object, Any] = {}  # what shapes.py made of annotations: it names registered classes


def _reached() -> TypeTable:
    # Resolved at first use, not by `register`: a field's class may be defined further down.
    for table in _reach:
        return table
    table = TypeTable(_collect(tuple(_registered)))
    _reach[:] = [table]
    return table


@overload
def register(cls: T, *, name: str | None = ...) -> T: ...
@overload
def register(*, name: str) -> Callable[[T], T]: ...
@overload
def register(
    cls: T,
    *,
    name: str | None = ...,
    encode: Callable[[Any], object],
    decode: Callable[[Any], Any],
) -> T: ...
def register(
    cls: T | None = None,
    *,
    name: str | None = None,
    encode: Callable[[Any], object] | None = None,
    decode: Callable[[Any], Any] | None = None,
) -> T | Callable[[T], T]:
    """Lets values of a class be recorded wherever they turn up, whatever the annotations say.

    A `name` keeps records readable when the class is renamed or moved. `encode` turns a value into
    plain data, `decode` turns that back. Registering holds for this process only: every process
    that reads the records must register the class too.
    """
    if cls is None:
        return lambda cls: _register(cls, name, encode, decode)
    return _register(cls, name, encode, decode)


def _register(
    cls: T,
    name: str | None,
    encode: Callable[[Any], object] | None,
    decode: Callable[[Any], Any] | None,
) -> T:
    if not isinstance(cls, type):
        raise TypeError(f"register() takes a class, not {cls!r}")
    if (encode is None) != (decode is None):
        raise ValueError(f"register({cls.__name__}): give both encode= and decode=, or neither")
    if cls.__module__ in ("builtins", "datetime", "decimal", "uuid", "pathlib"):
        raise ValueError(f"register({cls.__name__}): this class is recorded as it is")
    kind = "custom" if encode is not None else kind_of(cls)
    if kind is None:
        raise ValueError(
            f"register({cls.__name__}): not a dataclass, enum, NamedTuple, pydantic model or"
            " exception; give encode= and decode= as well"
        )
    ref = name if name is not None else reference(cls)
    if not ref or ref in RESERVED_NAMES:
        raise ValueError(f"register({cls.__name__}): the name {ref!r} is taken by the format")
    holder = _by_name.get(ref)
    # The same class defined anew is a reloaded module or a notebook cell: the newer one counts.
    if holder is not None and reference(holder.cls) != reference(cls):
        raise ValueError(
            f"register({cls.__name__}): the name {ref!r} belongs to {reference(holder.cls)}"
        )
    if holder is not None:
        _registered.pop(holder.cls, None)
    _registered[cls] = _by_name[ref] = Plan(cls, kind, ref, encode, decode)
    _reach.clear()
    described.clear()
    return cls


EMPTY = TypeTable({})
LOOSE = LooseTable({})


def table_for(annotation: object) -> TypeTable:
    """The classes reachable from an annotation; a tuple of annotations counts as all of them.

    Names that cannot be resolved are left out: their values will not be encodable.
    """
    if annotation is Any:
        return EMPTY
    try:
        table = _tables.get(annotation)
    except TypeError:  # unhashable, e.g. Annotated[int, []]
        return TypeTable(_collect(annotation))
    if table is None:
        if len(_tables) >= _TABLES_MAX:
            _tables.clear()
        table = _tables[annotation] = TypeTable(_collect(annotation))
    return table


def _collect(annotation: object) -> dict[type, Plan]:
    plans: dict[type, Plan] = {}
    seen: dict[int, object] = {}  # holds on to the objects, so that no id is used twice
    todo: list[object] = [annotation]
    while todo and len(seen) < _REACH_MAX:
        item = todo.pop()
        if id(item) in seen or item is None or isinstance(item, str):
            continue
        seen[id(item)] = item
        if not isinstance(item, type) or typing.get_origin(item) is not None:
            todo.extend(_parts(item))
            continue
        if item.__module__ in ("builtins", "typing"):
            continue
        kind = kind_of(item)
        if kind is not None:
            plans[item] = Plan(item, kind, reference(item))
        if kind == "model":
            todo.extend(info.annotation for info in plans[item].fields.values())
        elif kind in ("data", "named") or typing.is_typeddict(item):
            todo.extend(resolve(item).values())
    return plans


def _parts(item: object) -> Iterator[object]:
    """What an annotation that is not a plain class is made of."""
    if isinstance(item, tuple | list):
        yield from item
        return
    origin = typing.get_origin(item)
    if origin is typing.Annotated:
        yield typing.get_args(item)[0]
    elif origin is Literal:
        yield from (type(value) for value in typing.get_args(item))
    elif origin is not None:
        yield origin
        yield from typing.get_args(item)
    elif isinstance(item, TypeVar):
        yield item.__bound__
        yield from item.__constraints__
    else:
        yield getattr(item, "__supertype__", None)  # NewType
        yield getattr(item, "__value__", None)  # type X = ...


def resolve(holder: Any, *, local: dict[str, Any] | None = None) -> dict[str, Any]:
    """A function's or class's annotations as objects; what cannot be resolved is left out."""
    try:
        return typing.get_type_hints(holder, localns=local, include_extras=True)
    except Exception:  # an annotation may be any expression at all, and fail in any way
        pass
    found: dict[str, Any] = {}
    for owner in reversed(getattr(holder, "__mro__", (holder,))):
        try:
            annotations = dict(getattr(owner, "__annotations__", {}))
        except Exception:  # Python 3.14 evaluates them here
            continue
        module = sys.modules.get(owner.__module__)
        scope = getattr(owner, "__globals__", None) or (vars(module) if module else {})
        for name, annotation in annotations.items():
            one = types.SimpleNamespace(__annotations__={name: annotation})
            try:
                found.update(typing.get_type_hints(one, scope, local, include_extras=True))
            except Exception:
                found.pop(name, None)
    return found


def hints(fn: Any) -> tuple[dict[str, Any], Any]:
    """A function's parameter annotations and its return annotation; Any where there is none."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not hasattr(fn, "__annotations__") and callable(fn):
        fn = type(fn).__call__  # an object with __call__
    inner = fn
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    found = resolve(inner, local=_closure(inner))
    result = found.pop("return", Any)
    return found, result


def _closure(fn: Any) -> dict[str, Any]:
    """Names of enclosing functions and type parameters, which the globals do not show."""
    names = {param.__name__: param for param in getattr(fn, "__type_params__", ())}
    code, cells = getattr(fn, "__code__", None), getattr(fn, "__closure__", None)
    for name, cell in zip(code.co_freevars if code else (), cells or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not yet bound
            continue
    return names
