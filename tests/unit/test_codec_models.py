"""Pydantic models and types come back equal, whatever their validators do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Literal, TypeVar, Union

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, Json, PrivateAttr, RootModel

from holdfast.codec import decode, encode, register
from holdfast.errors import NotDecodable, NotEncodable

WHAT = "step 'ask' of run 'r1'"
T = TypeVar("T")


def again(value: object, annotation: object) -> Any:
    return decode(encode(value, annotation=annotation, what=WHAT), annotation, what=WHAT)


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    friends: set[str] = set()


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    full_name: str = Field(alias="fullName", default="")
    pair: tuple[int, str] = (1, "a")
    meta: dict[int, Any] = {}
    seen: datetime | None = None


class Page(BaseModel, Generic[T]):
    items: list[T]


class Tree(BaseModel):
    children: list[Tree] = []


class Hashing(BaseModel):
    """A validator that must not run twice on a value, and a private attribute."""

    word: str
    _length: int = PrivateAttr(default=0)

    @pydantic.field_validator("word")
    @classmethod
    def _hash(cls, word: str) -> str:
        return f"hash({word})"

    def model_post_init(self, context: Any) -> None:
        self._length = len(self.word)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 0


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    when: datetime


class Names(RootModel[list[str]]):
    pass


class Links(BaseModel):
    url: pydantic.HttpUrl
    blob: Json[list[int]] = []


@pydantic.dataclasses.dataclass
class Checked:
    n: int
    cat: Cat


@pytest.mark.parametrize(
    "value",
    [
        Cat(),
        Owner(pet=Dog(friends={"a"}), fullName="x", meta={1: (2,)}),
        Owner(pet=Cat(), seen=datetime(2026, 1, 1, tzinfo=UTC)),
        Owner.model_validate({"pet": {"kind": "dog"}, "seen": "2026-01-01T00:00:00+02:00"}),
        Page[Cat](items=[Cat(lives=1)]),
        Page[Page[int]](items=[Page[int](items=[1])]),
        Tree(children=[Tree(), Tree(children=[Tree()])]),
        Open.model_validate({"a": 1, "b": (2,), "~": 3}),
        Frozen(when=datetime(2026, 1, 1)),
        Names(["a"]),
        Checked(1, Cat()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_models_come_back_equal(value):
    result = again(value, type(value) | None)
    assert result == value and type(result) is type(value)


@pytest.mark.skipif(not isinstance(pydantic.HttpUrl, type), reason="a class since pydantic 2.10")
def test_types_that_pydantic_knows_how_to_write_come_back_equal():
    links = Links.model_validate({"url": "https://example.org/x", "blob": "[1]"})
    assert again(links, Links) == links


def test_which_fields_were_given_is_remembered():
    result = again(Owner(pet=Cat()), Owner)
    assert result.model_dump(exclude_unset=True) == {"pet": {}}


def test_a_validator_does_not_change_a_value_twice_and_private_attributes_are_set_up():
    value = Hashing(word="x")
    result = again(value, Hashing)
    assert result.word == "hash(x)" and result._length > 0


def test_a_model_that_never_was_valid_comes_back_as_it_was():
    value = Cat.model_construct(kind="lion", lives=None)
    assert again(value, Cat).__dict__ == {"kind": "lion", "lives": None}


def test_a_model_whose_fields_changed_is_validated():
    new = pydantic.create_model("Cat", lives=(str, ...), age=(int, 3), __module__=__name__)
    data = encode(Cat(), annotation=Cat, what=WHAT)
    with pytest.raises(NotDecodable, match="lives"):
        decode(data, new, what=WHAT)
    newer = pydantic.create_model("Cat", lives=(float, ...), age=(int, 3), __module__=__name__)
    result = decode(data, newer, what=WHAT)
    assert result == newer(lives=9.0) and type(result.lives) is float


def test_the_bytes_of_a_model_do_not_depend_on_how_its_types_are_spelled():
    old = pydantic.create_model("M", a=(Union[int, None], 1), b=(list[Cat], []))  # noqa: UP007
    new = pydantic.create_model("M", a=(None | int, 1), b=(list[Annotated[Cat, 1]], []))
    assert encode(old(), annotation=old, what=WHAT) == encode(new(), annotation=new, what=WHAT)


def test_a_value_that_would_not_come_back_is_refused():
    class Login(BaseModel):
        password: pydantic.SecretStr

    with pytest.raises(NotEncodable, match=r"value\.password .*SecretStr"):
        encode(Login(password=pydantic.SecretStr("x")), annotation=Login, what=WHAT)


def test_a_registered_model_needs_no_annotation():
    register(Tree)
    assert again([Tree()], Any) == [Tree()]


def test_a_model_out_of_reach_is_refused_with_the_cure():
    with pytest.raises(NotEncodable, match=r"holdfast\.register\(Cat\)"):
        encode({"a": Cat()}, what=WHAT)


def test_a_deep_model_comes_back():
    tree = Tree()
    for _ in range(95):  # each level is a model in a list
        tree = Tree(children=[tree])
    data = encode(tree, annotation=Tree, what=WHAT)
    assert encode(decode(data, Tree, what=WHAT), annotation=Tree, what=WHAT) == data
