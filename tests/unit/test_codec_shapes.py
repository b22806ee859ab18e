"""Descriptions that check payloads where classes are unknown; plain data is in test_codec_fit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, NotRequired, Protocol, TypedDict, TypeVar

import pytest

from holdfast.codec import classes, decode_fitting, describe, encode, register
from holdfast.codec.fit import check
from holdfast.errors import BadValue

WHAT = "step 'ask' of run 'r1'"
Size = NewType("Size", int)
N = TypeVar("N", bound=int)
C = TypeVar("C", int, str)
Free = TypeVar("Free")


@dataclass
class Decision:
    approved: bool


class Colour(Enum):
    RED = 1


class Named(TypedDict):
    name: str
    age: NotRequired[int]


class Speaks(Protocol):
    def speak(self) -> str: ...


FITS: list[tuple[Any, Any]] = [
    (Any, object()),
    (object, 1),
    (int, 1),
    (int, True),
    (float, 1),
    (float, float("nan")),
    (int, 10**30),
    (complex, 1.5),
    (None, None),
    (int | None, None),
    (list, [1, "a"]),
    (list[int], []),
    (list[int | str], [1, "a"]),
    (Sequence[int], [1]),
    (Sequence[int], (1,)),
    (dict[str, int], {"a": 1}),
    (dict[int, str], {1: "a"}),
    (Mapping[str, Any], {"a": 1}),
    (tuple[int, ...], (1, 2, 3)),
    (tuple[int, str], (1, "a")),
    (tuple[()], ()),
    (set[str], {"a"}),
    (Literal["a", 1], "a"),
    (Annotated[int, "positive"], 3),
    (Size, 3),
    (N, 3),
    (C, "x"),
    (Free, "x"),
    (Named, {"name": "x"}),
    (Named, {"name": "x", "age": 3, "more": 1}),
    (date, datetime(2026, 1, 1)),
    (Decimal, Decimal(1)),
    (Path, Path("x")),
    (Decision, Decision(True)),
    (Decision | None, Decision(True)),
    (Colour, Colour.RED),
    (Speaks, 3),  # not understood, so not refused
    (Exception, ValueError("x")),
]

MISFITS: list[tuple[Any, Any]] = [
    (int, "1"),
    (int, 1.0),
    (str, None),
    (None, 0),
    (bool, 1),
    (int | None, "x"),
    (list[int], ["a"]),
    (list[int], (1,)),
    (dict[str, int], {"a": "b"}),
    (dict[str, int], [1]),
    (set[int], frozenset({1})),
    (Literal["a", 1], "b"),
    (Literal[1], True),
    (Annotated[int, "positive"], "3"),
    (Size, "3"),
    (Named, {"age": 3}),
    (Named, "x"),
    (datetime, date(2026, 1, 1)),
    (Decision, {"approve": True}),
    (Decision, {}),
    (Decision, {"approved": "yes"}),
    (Colour, 2),
    (dict[int, str], {"a": "a"}),
    (tuple[int, str], (1, 2)),
    (tuple[int, str], (1,)),
    (tuple[int, ...], (1, "a")),
    (Named, {"name": 3}),
    (N, "x"),
]


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch):
    monkeypatch.setattr(classes, "_registered", {})
    monkeypatch.setattr(classes, "_by_name", {})
    monkeypatch.setattr(classes, "_reach", [])
    classes.described.clear()
    yield
    classes.described.clear()


def encoded(annotation: Any, value: Any) -> bytes:
    return encode(value, annotation=(annotation, type(value)), what=WHAT)


@pytest.mark.parametrize(("annotation", "value"), FITS[1:], ids=repr)
def test_what_fits_draws_no_complaint_and_stays_what_it_is(annotation, value):
    data = encoded(annotation, value)
    assert check(describe(annotation), data) is None
    found, _ = decode_fitting(data, annotation, what=WHAT)
    assert repr(found) == repr(value) or found == value


@pytest.mark.parametrize(("annotation", "value"), MISFITS, ids=repr)
def test_what_does_not_fit_draws_a_complaint_with_and_without_the_class(annotation, value):
    data = encoded(annotation, value)
    complaint = check(describe(annotation), data)
    assert complaint is not None and "the value" in complaint
    with pytest.raises(BadValue) as refused:
        decode_fitting(data, annotation, what=WHAT)
    assert str(refused.value) == f"{WHAT}: {complaint}"


@pytest.mark.parametrize(
    ("annotation", "description"),
    [
        (int, {"type": "integer"}),
        (str, {"type": "string"}),
        (float, {"type": "number"}),
        (None, {"type": "null"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (int | Any, {}),
        (Literal["yes", "no"], {"enum": ["yes", "no"]}),
        (
            Named,
            {
                "type": "object",
                "required": ["name"],
                "fields": {"name": {"type": "string"}, "age": {"type": "integer"}},
            },
        ),
        (Any, {}),
        (datetime, {"type": "datetime"}),
        (Speaks, {}),
    ],
)
def test_descriptions_are_short_json(annotation, description):
    assert json.loads(describe(annotation)) == description


def test_a_registered_class_is_described_by_its_name():
    register(Decision, name="decision")
    assert json.loads(describe(Decision)) == {
        "type": "decision",
        "defs": {
            "decision": {"fields": {"approved": {"type": "boolean"}}, "required": ["approved"]}
        },
    }
    data = encode(Decision(True), what=WHAT)
    assert check('{"type":"decision"}', data) is None
    assert check('{"type":"other"}', data) == "the value is a decision, awaited is an other"


def test_complaints_are_words():
    assert check(describe(int), b'"x"') == 'the value is "x", awaited is an integer'
    assert check(describe(int | None), b"[]") == (
        "the value is an array, awaited is an integer or null"
    )
    assert check(describe(Literal["yes", "no"]), b'"maybe"') == (
        'the value is "maybe", awaited is one of "yes", "no"'
    )
    assert check(describe(list[int]), b'[1,"x"]') == ('the value[1] is "x", awaited is an integer')
    assert check(describe(int), b"nonsense") == "the data is not JSON"


def test_a_description_from_a_newer_version_lets_everything_pass():
    for description in ("{}", "nonsense", "[]", '{"new":1}'):
        assert check(description, b"1") is None


def test_recursive_annotations_end_somewhere():
    assert json.loads(describe(Recursive))["type"] == "array"
    decode_fitting(b"[[[[[[[[[[[[]]]]]]]]]]]]", Recursive, what=WHAT)


Recursive = list["Recursive"]
