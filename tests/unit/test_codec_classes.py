"""Dataclasses, enums and other classes: rebuilt if annotated or registered, and only then."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import sys
import types
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    TypedDict,
    TypeVar,
)

import pytest

from holdfast.codec import classes, decode, encode, hints, register, table_for
from holdfast.errors import NotDecodable, NotEncodable

if TYPE_CHECKING:
    from somewhere import Unheard  # type: ignore[import-not-found]

WHAT = "step 'ask' of run 'r1'"
T = TypeVar("T")


def again(value: object, annotation: object = Any) -> Any:
    return decode(encode(value, annotation=annotation, what=WHAT), annotation, what=WHAT)


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch):
    monkeypatch.setattr(classes, "_registered", {})
    monkeypatch.setattr(classes, "_by_name", {})
    monkeypatch.setattr(classes, "_reach", [])


class Colour(enum.Enum):
    RED = "r"
    CRIMSON = "r"  # an alias
    BLUE = (1, 2)


class Level(enum.IntEnum):
    LOW = 1


class Mode(enum.StrEnum):
    FAST = "fast"


class Rights(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Point(NamedTuple):
    x: int
    colour: Colour = Colour.RED


@dataclass
class Item:
    name: str
    colours: list[Colour] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Report:
    items: tuple[Item, ...]
    by_name: dict[str, Item] = field(default_factory=dict)
    parent: Report | None = None
    size: int = field(init=False, default=0)
    never_set: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.size + len(self.items))


@dataclass
class Special(Item):
    rank: int = 0
    seed: dataclasses.InitVar[int] = 3

    def __post_init__(self, seed: int) -> None:
        self.secret = seed * 2

    @functools.cached_property
    def cached(self) -> object:
        return object()


@dataclass
class Box(Generic[T]):
    content: T


class Person(TypedDict, total=False):
    box: Box[Level]


UserId = NewType("UserId", Item)


class Opaque:
    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.number == self.number


ITEM = Item("a", [Colour.RED, Colour.BLUE])


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Colour.CRIMSON, Colour),
        (Level.LOW, Level | None),
        (Mode.FAST, Mode),
        ({Mode.FAST: 1}, dict[Mode, int]),
        (Rights.READ | Rights.WRITE, Rights),
        (Rights(0), Rights),
        (Point(1), Point),
        (Point(1, Colour.BLUE), Annotated[Point, "metadata"]),
        (ITEM, Item),
        (ITEM, UserId),
        (None, Item | None),
        ([ITEM, None], list[Item | None]),
        ({"a": (ITEM,)}, dict[str, tuple[Item, ...]]),
        (Special("a", rank=2), Special | Item),
        (Box(ITEM), Box[Item]),
        (Box([Box(Level.LOW)]), Box[list[Box[Level]]]),
        ({"box": Box(Level.LOW)}, Person),
        (ITEM, AsyncIterator[Item]),
        (ITEM, Callable[[Item], None]),
        (Colour.RED, Literal[Colour.RED]),
        ([ITEM, Level.LOW], (Item, int, Level)),
        (Item("~", []), Item),
    ],
    ids=repr,
)
def test_classes_reachable_from_the_annotation_come_back(value, annotation):
    result = again(value, annotation)
    assert result == value and type(result) is type(value)


def test_enums_come_back_as_the_very_members():
    assert again(Colour.BLUE, Colour) is Colour.BLUE
    assert again(Level.LOW, Level) is Level.LOW


def test_a_dataclass_is_rebuilt_without_running_its_init():
    report = Report((ITEM,), {"a": ITEM}, Report(()))
    assert report.size == 1
    result = again(report, Report)
    assert (result.items, result.by_name, result.size) == ((ITEM,), {"a": ITEM}, 1)
    assert type(result.parent) is Report
    assert not hasattr(result, "never_set")
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.size = 2


def test_attributes_beyond_the_fields_are_kept_but_cached_properties_are_not():
    special = Special("a", seed=21)
    special.cached  # noqa: B018
    result = again(special, Special)
    assert result.secret == 42 and "cached" not in vars(result)


def test_a_generic_instance_made_by_subscript_is_an_ordinary_one():
    assert again(Box[int](1), Box[int]) == Box(1)


def test_a_class_out_of_reach_is_refused_with_the_cure():
    for annotation in (Any, int, list[Point]):
        with pytest.raises(NotEncodable, match=r"value\[0\]\.colours|value\[0\] is a .*Item") as no:
            encode([ITEM], annotation=annotation, what=WHAT)
        assert "holdfast.register(Item)" in str(no.value) and WHAT in str(no.value)


def test_a_subclass_the_annotation_does_not_name_is_refused():
    with pytest.raises(NotEncodable, match="Special"):
        encode(Special("a"), annotation=Item, what=WHAT)


def test_a_refusal_names_attributes_in_its_path():
    with pytest.raises(NotEncodable, match=r"value\.items\[1\]\.name is a .*Opaque"):
        encode(Report((ITEM, Item(Opaque(1)))), annotation=Report, what=WHAT)  # type: ignore[arg-type]


def test_data_is_not_rebuilt_without_an_annotation_that_leads_to_the_class():
    data = encode(ITEM, annotation=Item, what=WHAT)
    for annotation in (Any, str, Point):
        with pytest.raises(NotDecodable, match="Item") as no:
            decode(data, annotation, what=WHAT)
        assert "holdfast.register" in str(no.value)


def test_loose_encoding_takes_any_such_class_and_gives_the_same_bytes():
    for value, annotation in ((ITEM, Item), (Point(1), Point), (Level.LOW, Level)):
        data = encode([value], loose=True, what=WHAT)
        assert data == encode([value], annotation=annotation, what=WHAT)
        with pytest.raises(NotDecodable):
            decode(data, what=WHAT)
    with pytest.raises(NotEncodable):
        encode(Opaque(1), loose=True, what=WHAT)
    with pytest.raises(NotEncodable):
        encode(ITEM, what=WHAT)


# --- classes that change


def remade(**changes: Any) -> tuple[type, type]:
    """Two versions of a dataclass that bear the same name."""
    old = dataclasses.make_dataclass("Thing", [("a", int), ("b", int)])
    new = dataclasses.make_dataclass("Thing", **changes)
    old.__module__ = new.__module__ = "app"
    return old, new


def test_a_new_field_takes_its_default_and_a_dropped_one_is_ignored():
    old, new = remade(fields=[("a", int), ("c", list, field(default_factory=list)), ("d", int, 7)])
    result = decode(encode(old(1, 2), annotation=old, what=WHAT), new, what=WHAT)
    assert result == new(1, [], 7)


def test_a_new_field_without_a_default_is_an_error_that_says_so():
    old, new = remade(fields=[("a", int), ("c", int)])
    with pytest.raises(NotDecodable, match="lacks the field 'c' of Thing"):
        decode(encode(old(1, 2), annotation=old, what=WHAT), new, what=WHAT)


def test_a_class_that_moved_to_another_module_is_found_by_its_annotation():
    data = encode(ITEM, annotation=Item, what=WHAT).replace(Item.__module__.encode(), b"__main__")
    assert decode(data, list[Item], what=WHAT) == ITEM
    data = data.replace(b"__main__", b"elsewhere")
    assert decode(data, Item, what=WHAT) == ITEM


def test_an_enum_member_that_is_gone_is_an_error():
    data = encode(Colour.RED, annotation=Colour, what=WHAT).replace(b"RED", b"PINK")
    with pytest.raises(NotDecodable, match="'PINK', which is no member of Colour"):
        decode(data, Colour, what=WHAT)


def test_a_named_tuple_may_grow_fields_with_defaults():
    data = encode(Point(1), annotation=Point, what=WHAT)
    node = json.loads(data)
    short = json.dumps({**node, "v": node["v"][:1]}).encode()
    assert decode(short, Point, what=WHAT) == Point(1)
    with pytest.raises(NotDecodable, match="has 3 fields, but Point has 2"):
        decode(json.dumps({**node, "v": [1, 2, 3]}).encode(), Point, what=WHAT)


# --- the registry


def test_a_registered_class_and_what_its_fields_hold_need_no_annotation():
    register(Report)
    report = Report((ITEM,))
    assert again([report])[0].items == (ITEM,)


def test_a_registered_name_survives_a_renaming():
    old, new = remade(fields=[("a", int), ("b", int)])
    register(name="thing")(old)
    data = encode(old(1, 2), what=WHAT)
    assert b'"thing"' in data and b"app" not in data
    new.__qualname__ = "Renamed"
    classes._registered.clear()
    classes._by_name.clear()
    register(new, name="thing")
    assert decode(data, what=WHAT) == new(1, 2)


def test_registering_later_does_not_orphan_what_was_recorded_before():
    data = encode(ITEM, annotation=Item, what=WHAT)
    register(Item, name="item")
    assert decode(data, Item, what=WHAT) == ITEM


def test_any_class_can_be_registered_with_functions():
    register(Opaque, encode=lambda value: (value.number,), decode=lambda plain: Opaque(*plain))
    assert again({"a": [Opaque(7)]}) == {"a": [Opaque(7)]}


def test_registered_functions_that_fail_are_our_errors():
    register(Opaque, encode=lambda value: value.missing, decode=lambda plain: plain)
    with pytest.raises(NotEncodable, match=r"value\[0\].*AttributeError"):
        encode([Opaque(1)], what=WHAT)
    register(Opaque, encode=lambda value: 0, decode=lambda plain: 1 // plain)
    with pytest.raises(NotDecodable, match="ZeroDivisionError"):
        again(Opaque(1))


def test_registering_a_class_again_replaces_it_but_a_taken_name_is_refused():
    old, new = remade(fields=[("a", int)])
    register(old)
    register(new)  # a module that was reloaded
    assert again(new(1)) == new(1)
    register(Item, name="thing")
    with pytest.raises(ValueError, match=r"'thing' belongs to .*Item"):
        register(Report, name="thing")


@pytest.mark.parametrize(
    ("cls", "options", "text"),
    [
        (Opaque, {}, "give encode= and decode= as well"),
        (Opaque, {"encode": str}, "both encode= and decode="),
        (dict, {"encode": str, "decode": str}, "as it is"),
        (datetime, {"encode": str, "decode": str}, "as it is"),
        (Item, {"name": "integer"}, "taken by the format"),
        (Item, {"name": ""}, "taken by the format"),
    ],
)
def test_a_registration_that_cannot_work_is_refused(cls, options, text):
    with pytest.raises(ValueError, match=text):
        register(cls, **options)


# --- annotations


def test_tables_are_kept_and_survive_annotations_that_cannot_be_hashed():
    assert table_for(list[Item]) is table_for(list[Item])
    odd = Annotated[Item, []]
    assert again(ITEM, odd) == ITEM


def test_hints_resolve_strings_and_leave_out_what_cannot_be_resolved():
    def fn(a: Item, b: Unheard, c, *args: int, d: list[Item] | None = None, **rest: str) -> Report:
        raise NotImplementedError

    params, result = hints(fn)
    assert params == {"a": Item, "args": int, "d": list[Item] | None, "rest": str}
    assert result is Report


def test_hints_see_through_wrappers_partials_methods_and_callables():
    def fn(a: Item) -> Colour:
        return Colour.RED

    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    class Tool:
        def run(self, a: Item) -> Colour:
            return Colour.RED

        __call__ = run

    for form in (fn, wrapper, functools.partial(fn), Tool().run, Tool()):
        assert hints(form) == ({"a": Item}, Colour)
    assert hints(lambda x: x) == ({}, Any)
    assert hints(len) == ({}, Any)


def test_hints_see_classes_of_enclosing_functions():
    @dataclass
    class Local:
        x: int

    def fn() -> Local:
        return Local(1)

    assert hints(fn) == ({}, Local)
    assert again(fn(), hints(fn)[1]) == Local(1)


def test_a_dataclass_with_an_unresolvable_field_keeps_the_others():
    module = types.ModuleType("half_known")
    sys.modules["half_known"] = module
    try:
        vars(module).update(Item=Item, dataclass=dataclass)
        source = "@dataclass\nclass Half:\n    a: 'Item'\n    b: 'Nowhere'\n"
        exec(compile(source, "half_known.py", "exec"), vars(module))
        half = vars(module)["Half"](ITEM, None)
        assert again(half, vars(module)["Half"]) == half
    finally:
        del sys.modules["half_known"]
