"""Plain data from outside: what it is converted to, and what is refused, and where."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from pathlib import Path, PurePosixPath
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
)
from uuid import UUID

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator, model_validator

from holdfast.codec import admit, classes, decode_fitting, describe, encode, fitted, register
from holdfast.codec.fit import check
from holdfast.errors import BadValue

WHAT = "the answer"
T = TypeVar("T")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mode(StrEnum):
    FAST = "fast"


class Bits(Flag):
    A = 1
    B = 2


class Loud(Enum):
    YES = "yes"

    @classmethod
    def _missing_(cls, value: object) -> Loud | None:
        return cls.YES if value == "YES!" else None


@dataclass
class Item:
    name: str
    price: Decimal = Decimal("1")
    when: datetime | None = None
    tags: set[str] = field(default_factory=set)


@dataclass
class Order:
    items: list[Item]
    colour: Colour = Colour.RED
    by_day: dict[date, int] = field(default_factory=dict)


@dataclass
class Tree:
    left: Tree | None = None
    right: Tree | None = None
    value: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: float
    y: float = 0.0
    length: float = field(init=False)
    scale: InitVar[float] = 1.0

    def __post_init__(self, scale: float) -> None:
        if self.x < 0:
            raise ValueError("x is negative")
        object.__setattr__(self, "length", (self.x + self.y) * scale)


@dataclass
class Box(Generic[T]):
    content: T


class Pair(NamedTuple):
    first: int
    second: date = date(2026, 1, 1)


class Model(BaseModel):
    a: int
    b: datetime | None = None
    items: list[Item] = Field(default_factory=list, max_length=3)
    rate: float = Field(default=0.5, ge=0, le=1)


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    at: datetime
    kind: Literal["strict"] = "strict"


class Aliased(BaseModel):
    full_name: str = Field(alias="fullName")


class Free(BaseModel):
    x: int

    @model_validator(mode="before")
    @classmethod
    def read(cls, data: Any) -> Any:
        return {"x": len(data)} if isinstance(data, str) else data


class Checked(BaseModel):
    even: int
    free: int = 0

    @field_validator("even")
    @classmethod
    def is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value

    @field_validator("free", mode="before")
    @classmethod
    def read(cls, value: Any) -> Any:
        return len(value) if isinstance(value, list) else value


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []


class Ids(RootModel[list[int]]):
    pass


@pydantic.dataclasses.dataclass
class Valid:
    n: int
    on: date | None = None


class Options(TypedDict):
    at: datetime
    item: NotRequired[Item]


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
U = UUID("12345678-1234-5678-1234-567812345678")
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

CONVERTED: list[tuple[Any, Any, Any]] = [
    (datetime, "2026-01-31T12:00:00Z", NOON),
    (datetime, "2026-01-31T12:00:00+00:00", NOON),
    (date, "2026-01-31", date(2026, 1, 31)),
    (time, "08:30", time(8, 30)),
    (timedelta, 90, timedelta(seconds=90)),
    (timedelta, "PT1H30M", timedelta(hours=1.5)),
    (timedelta, "P1DT0.5S", timedelta(days=1, seconds=0.5)),
    (timedelta, "0:01:30", timedelta(seconds=90)),
    (timedelta, str(timedelta(days=2, seconds=5)), timedelta(days=2, seconds=5)),
    (timedelta, str(timedelta(hours=-1)), timedelta(hours=-1)),
    (UUID, str(U), U),
    (Decimal, "1.10", Decimal("1.10")),
    (Decimal, 0.1, Decimal("0.1")),
    (Path, "a/b", Path("a/b")),
    (PurePosixPath, "a/b", PurePosixPath("a/b")),
    (bytes, "hé", "hé".encode()),
    (bytearray, "x", bytearray(b"x")),
    (float, 3, 3.0),
    (Colour, "red", Colour.RED),
    (Colour, "RED", Colour.RED),
    (Level, 2, Level.HIGH),
    (Mode, "fast", Mode.FAST),
    (Bits, 3, Bits.A | Bits.B),
    (Loud, "YES!", Loud.YES),
    (set[int], [1, 2, 1], {1, 2}),
    (frozenset[Colour], ["red"], frozenset({Colour.RED})),
    (tuple[int, ...], [1, 2], (1, 2)),
    (tuple[int, date], [1, "2026-01-31"], (1, date(2026, 1, 31))),
    (dict[int, Colour], {"1": "red"}, {1: Colour.RED}),
    (dict[date, int], {"2026-01-31": 1}, {date(2026, 1, 31): 1}),
    (dict[Colour, int], {"red": 1}, {Colour.RED: 1}),
    (dict[Level, int], {"2": 1}, {Level.HIGH: 1}),
    (dict[UUID, bool], {str(U): True}, {U: True}),
    (Mapping[str, Item], {"x": {"name": "a"}}, {"x": Item("a")}),
    (Sequence[Item], [{"name": "a"}], [Item("a")]),
    (Item, {"name": "a", "price": "2.5", "tags": ["x"]}, Item("a", Decimal("2.5"), tags={"x"})),
    (Item, {"name": "a", "when": "2026-01-31T12:00:00Z"}, Item("a", when=NOON)),
    (Item | None, {"name": "a"}, Item("a")),
    (Optional[Item], {"name": "a"}, Item("a")),  # noqa: UP045
    (
        Order,
        {"items": [{"name": "a"}], "colour": "blue", "by_day": {"2026-01-31": 2}},
        Order([Item("a")], Colour.BLUE, {date(2026, 1, 31): 2}),
    ),
    (Tree, {"left": {"right": {"value": 3}}}, Tree(Tree(None, Tree(value=3)))),
    (Point, {"x": 1, "y": 2, "scale": 2}, Point(x=1.0, y=2.0, scale=2.0)),
    (Box[Item], {"content": {"name": "a"}}, Box(Item("a"))),
    (Box[list[date]], {"content": ["2026-01-31"]}, Box([date(2026, 1, 31)])),
    (Pair, {"first": 1}, Pair(1)),
    (Pair, [1, "2026-01-31"], Pair(1, date(2026, 1, 31))),
    (Model, {"a": 1}, Model(a=1)),
    (Model, {"a": "1", "b": "2026-01-31T12:00:00Z"}, Model(a=1, b=NOON)),
    (Model, {"a": 1, "items": [{"name": "x"}], "more": 1}, Model(a=1, items=[Item("x")])),
    (Strict, {"at": "2026-01-31T12:00:00Z"}, Strict(at=NOON)),
    (Aliased, {"fullName": "Ann"}, Aliased(fullName="Ann")),
    (Free, "four", Free(x=4)),
    (Checked, {"even": 2, "free": [1, 2]}, Checked(even=2, free=2)),
    (Ids, [1, 2], Ids([1, 2])),
    (Valid, {"n": "3", "on": "2026-01-31"}, Valid(3, date(2026, 1, 31))),
    (Pet, {"kind": "dog", "tricks": ["sit"]}, Dog(kind="dog", tricks=["sit"])),
    (Cat | Dog, {"tricks": ["sit"]}, Dog(tricks=["sit"])),
    (Cat | Dog | None, {"kind": "cat"}, Cat(kind="cat")),
    (Item | Pair, {"first": 1}, Pair(1)),
    (list[Model], [{"a": 1}], [Model(a=1)]),
    (int | datetime, "2026-01-31T12:00:00Z", NOON),
    (Options, {"at": "2026-01-31T12:00:00Z"}, {"at": NOON}),
    (
        Options,
        {"at": "2026-01-31T12:00:00Z", "item": {"name": "a"}},
        {"at": NOON, "item": Item("a")},
    ),
    (dict[str, Any] | Item, {"name": "a"}, {"name": "a"}),  # it may stay what it is
    (datetime | str, "2026-01-31", "2026-01-31"),
    (int | float, 3, 3),
]


@pytest.mark.parametrize(("annotation", "plain", "value"), CONVERTED, ids=repr)
def test_plain_data_becomes_a_value_of_the_annotated_type(annotation, plain, value):
    data = json.dumps(plain).encode()
    assert check(describe(annotation), data) is None
    found, _ = decode_fitting(data, annotation, what=WHAT)
    assert found == value and type(found) is type(value)
    assert encode(found, annotation=annotation, what=WHAT) == encode(
        value, annotation=annotation, what=WHAT
    )


@pytest.mark.parametrize(("annotation", "plain", "value"), CONVERTED, ids=repr)
def test_what_is_recorded_is_the_value_and_is_not_converted_again(annotation, plain, value):
    recorded = admit(json.dumps(plain).encode(), annotation, what=WHAT)
    found, converted = decode_fitting(recorded, annotation, what=WHAT)
    assert found == value and type(found) is type(value)
    assert not converted
    assert admit(recorded, annotation, what=WHAT) == recorded


@pytest.mark.parametrize(("annotation", "plain", "value"), CONVERTED, ids=repr)
def test_arguments_are_converted_alike_and_values_stay_as_they_are(annotation, plain, value):
    assert fitted(plain, annotation, what=WHAT) == value
    assert fitted(value, annotation, what=WHAT) is value


REFUSED: list[tuple[Any, Any, str]] = [
    (datetime, "soon", 'the value is "soon", awaited is a date and time such as 2026-01-31T08:00'),
    (datetime, 5, "the value is 5, awaited is a date and time"),
    (timedelta, "P", "awaited is a duration"),
    (timedelta, 1e300, "awaited is a duration"),
    (UUID, "x", 'is "x", awaited is a UUID'),
    (Decimal, "many", 'is "many", awaited is a decimal number'),
    (Decimal, True, "awaited is a decimal number"),
    (Path, 3, "awaited is a path"),
    (bytes, 3, "awaited is a text"),
    (int, "3", 'the value is "3", awaited is an integer'),
    (str, 3, "the value is an integer, awaited is a string"),
    (Colour, "green", 'is "green", awaited is one of "red", "blue" (tests.unit.test_codec_fit:Col'),
    (Colour, 1, 'awaited is one of "red", "blue"'),
    (Level, True, "awaited is one of 1, 2"),
    (Bits, "A", "awaited is an integer of the flags"),
    (set[int], ["x"], 'the value[0] is "x", awaited is an integer'),
    (set[Item], [{"name": "a"}], "the value cannot be a set: "),
    (tuple[int, str], [1], "the value has 1 items, awaited are 2"),
    (tuple[()], [1], "the value has 1 items, awaited are 0"),
    (Sequence[int], "abc", 'the value is "abc", awaited is a sequence'),
    (dict[int, str], {"x": "y"}, "the value['x'] stands under a key that is not an integer"),
    (Item, {}, "the value lacks the field 'name' of tests.unit.test_codec_fit:Item"),
    (Item, [], "the value is an array, awaited is a tests.unit.test_codec_fit:Item, or an object"),
    (Item, {"name": "a", "prize": 1}, "has a field 'prize', which tests.unit.test_codec_fit:Item"),
    (Item, {"name": 1}, "the value.name is an integer, awaited is a string"),
    (Order, {"items": [{"name": "a", "price": []}]}, "the value.items[0].price is []"),
    (Item | None, {"name": "a", "when": "soon"}, 'the value.when is "soon"'),
    (Item | Pair, {"name": 3}, "the value.name is an integer, awaited is a string"),
    (Cat | Dog, {"kind": "cow"}, 'kind is "cow", awaited is one of "cat" or one of "dog"'),
    (Cat | Dog | None, {"kind": "cat", "lives": "x"}, "the value.lives is "),
    (Point, {"x": 1, "length": 3}, "has a field 'length'"),
    (Pair, {}, "lacks the field 'first'"),
    (Pair, [1, "2026-01-31", 3], "is an array"),
    (Model, {}, "the value"),
    (Model, {"a": "x"}, "the value"),
    (Model, {"a": 1, "rate": 3}, "the value"),
    (Model, {"a": 1, "items": [{}]}, "the value"),
    (Model, [], "the value"),
    (Strict, {"at": "2026-01-31T12:00:00Z", "more": 1}, "the value"),
    (Aliased, {"full_name": "Ann"}, "the value"),
    (Ids, ["x"], "the value"),
    (Valid, {"n": "x"}, "the value"),
    (Options, {}, "the value lacks the key 'at'"),
    (Options, {"at": 1}, "the value['at'] is 1, awaited is a date and time"),
    (list[Model], [{"a": 1}, {}], "the value[1]"),
]


@pytest.mark.parametrize(("annotation", "plain", "said"), REFUSED, ids=repr)
def test_what_does_not_fit_is_refused_with_and_without_the_classes(annotation, plain, said):
    data = json.dumps(plain).encode()
    if annotation != set[Item]:  # only Python itself knows what can be in a set
        complaint = check(describe(annotation), data)
        assert complaint is not None and said in complaint
    with pytest.raises(BadValue, match="the answer: the value"):
        decode_fitting(data, annotation, what=WHAT)
    with pytest.raises(BadValue, match="the answer: the value"):
        fitted(plain, annotation, what=WHAT)


LATE: list[tuple[Any, Any, str]] = [
    (Point, {"x": -1}, "is refused by tests.unit.test_codec_fit:Point: ValueError: x is negative"),
    (Checked, {"even": 3}, "is refused by tests.unit.test_codec_fit:Checked: even: Value error"),
    (Free, [1], "is refused by tests.unit.test_codec_fit:Free: Input should be"),
    (Loud, "no", "is refused by tests.unit.test_codec_fit:Loud: ValueError"),
]


@pytest.mark.parametrize(("annotation", "plain", "said"), LATE, ids=repr)
def test_what_only_the_class_can_tell_is_refused_where_the_class_is(annotation, plain, said):
    data = json.dumps(plain).encode()
    assert check(describe(annotation), data) is None
    with pytest.raises(BadValue) as refused:
        decode_fitting(data, annotation, what=WHAT)
    assert said in str(refused.value)


def test_default_values_are_made_once_and_recorded():
    made = iter(range(9))

    @dataclass
    class Ticket:
        name: str
        number: int = field(default_factory=lambda: next(made))

    recorded = admit(b'{"name":"a"}', Ticket, what=WHAT)
    assert [decode_fitting(recorded, Ticket, what=WHAT)[0].number for _ in range(3)] == [0, 0, 0]


def test_what_a_class_adds_and_cannot_be_recorded_is_made_anew():
    @dataclass
    class Holds:
        name: str

        def __post_init__(self) -> None:
            self.lock = object()

    data = b'{"name":"a"}'
    assert admit(data, Holds, what=WHAT) == data
    assert decode_fitting(data, Holds, what=WHAT)[0] == Holds("a")


def test_instances_and_plain_data_may_be_mixed():
    value = Order([Item("a")])
    for given in (value, {"items": [Item("a")]}, {"items": [{"name": "a"}]}):
        assert fitted(given, Order, what=WHAT) == value
    data = encode({"a": 1, "b": NOON}, what=WHAT)
    assert check(describe(Model), data) is None
    assert decode_fitting(data, Model, what=WHAT)[0] == Model(a=1, b=NOON)


def test_an_instance_is_known_by_its_name_when_its_module_has_another():
    data = encode(Item("a"), annotation=Item, what=WHAT)
    elsewhere = data.replace(b"tests.unit.test_codec_fit:Item", b"__main__:Item")
    assert check(describe(Item), elsewhere) is None
    assert decode_fitting(elsewhere, Item, what=WHAT)[0] == Item("a")
    assert "awaited is a" in (check(describe(Pair), elsewhere) or "")


def test_an_instance_where_anything_is_awaited_must_be_registered():
    data = encode([Item("a")], what=WHAT, loose=True)
    complaint = check(describe(Any), data)
    assert complaint is not None and "holds a tests.unit.test_codec_fit:Item" in complaint
    assert check(describe(dict[str, Any] | Item), encode({"x": 1}, what=WHAT)) is None
    with pytest.raises(BadValue, match=r"holdfast\.register"):
        decode_fitting(data, Any, what=WHAT)


def test_a_registered_class_takes_the_plain_data_that_it_is_recorded_as(monkeypatch):
    for name in ("_registered", "_by_name"):
        monkeypatch.setattr(classes, name, {})
    monkeypatch.setattr(classes, "_reach", [])

    class Money:
        def __init__(self, cents: int) -> None:
            self.cents = cents

    register(Money, name="money", encode=lambda money: money.cents, decode=Money)
    assert check(describe(Money), b"5") is None
    assert decode_fitting(b"5", Money, what=WHAT)[0].cents == 5


def test_a_large_description_says_less_and_stays_short():
    wide = Literal[tuple(f"{n:0100}" for n in range(4000))]  # type: ignore[valid-type]
    assert describe(wide) == "{}"
    with pytest.raises(BadValue):
        decode_fitting(b'"x"', wide, what=WHAT)


def test_a_union_that_would_have_to_be_tried_without_end_is_refused():
    node: Any = {"value": "x"}
    for _ in range(60):
        node = {"left": node}
    data = json.dumps(node).encode()
    with pytest.raises(BadValue, match="takes too long"):
        decode_fitting(data, Endless, what=WHAT)
    assert "takes too long" in (check(describe(Endless), data) or "")


@dataclass
class Twin:
    left: Endless | None = None
    value: int = 0


@dataclass
class OtherTwin:
    left: Endless | None = None
    value: int = 0


Endless = Twin | OtherTwin


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", b'{"~":"dict","v":[1]}', b'{"~":["x"]}', b"[" * 5000, b'{"~":1}']
)
def test_data_that_is_damaged_is_refused_and_harms_nobody(data):
    for annotation in (Item, dict[str, int], Any, Model, int | None):
        with pytest.raises(BadValue):
            decode_fitting(data, annotation, what=WHAT)
        check(describe(annotation), data)
