"""What adapters show to people is short and plain data, whatever it was."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import json
from decimal import Decimal
from typing import Any

import pydantic
import pytest

from holdfast import codec
from holdfast.adapters._questions import CHARS_MAX, about_call, question


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Plan:
    title: str
    steps: tuple[str, ...] = ()
    colour: Colour | None = None


class Order(pydantic.BaseModel):
    item: str
    price: Decimal | None = None


class Message:
    text = "hello"


class Evil:
    def __str__(self) -> str:
        raise RuntimeError("no")


class EvilPlan(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no")


def test_plain_data_stays_what_it_is() -> None:
    things: list[Any] = ["Sure?", 3, 2.5, True, None, {"a": [1, {"b": None}]}, []]
    for plain in things:
        assert question(plain) == plain


def test_classes_become_plain_data() -> None:
    plan = Plan("owls", ("look",), Colour.RED)
    assert question(plan) == {"title": "owls", "steps": ["look"], "colour": "red"}
    assert question(Plan("bats")) == {"title": "bats", "steps": []}
    assert question(Order(item="tea", price=Decimal("1.50"))) == {"item": "tea", "price": "1.50"}
    assert question([Message(), {3: {4}}]) == ["hello", {"3": [4]}]


def test_a_call_is_shown_with_what_else_there_is_to_say() -> None:
    assert about_call("refund", {"order": "7"}, hint=None, agent="helper") == {
        "tool": "refund",
        "arguments": {"order": "7"},
        "agent": "helper",
    }


def _circle() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


def _bush(levels: int) -> Any:
    found: Any = "leaf"
    for _ in range(levels):
        found = [found, found]
    return found


@pytest.mark.parametrize(
    "odd",
    ids=itertools.count(),  # some have no text
    argvalues=[
        object(),
        Evil(), EvilPlan(a=1), [Evil()], {Evil(): 1}, float("nan"), 10**5000, b"\xff",
        "\ud800", "\0", _circle(), _bush(60), "x" * 100_000, {"x": "y" * 100_000},
        list(range(100_000)), {n: n for n in range(100_000)}, Plan,
    ],
)  # fmt: skip
def test_what_cannot_be_encoded_or_is_too_long_is_shown_as_far_as_it_can_be(odd: Any) -> None:
    shown = question(odd)
    assert len(codec.encode(shown, what="a question")) <= 4 * CHARS_MAX
    assert len(json.dumps(shown, ensure_ascii=False)) <= 2 * CHARS_MAX
