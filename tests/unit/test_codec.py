"""Values come back equal, with the same types at every level, or are refused with a cure."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time as clock
from collections import OrderedDict
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import codec
from holdfast.codec import LEVELS_MAX, decode, digest, encode
from holdfast.errors import NotDecodable, NotEncodable, PayloadTooLarge

WHAT = "step 'ask' of run 'r1'"


def again(value: object) -> Any:
    data = encode(value, what=WHAT)
    json.loads(data, parse_constant=pytest.fail)  # standard JSON, whatever the value
    return decode(data, what=WHAT)


def same(left: Any, right: Any) -> bool:
    """Equal and of the same types all the way down, NaN being the same as NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return repr(left) == repr(right)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, set | frozenset):
        return sorted(map(repr, left)) == sorted(map(repr, right))
    if isinstance(left, datetime | time):
        return repr(left) == repr(right) and left.fold == right.fold
    return repr(left) == repr(right)


texts = st.text(st.characters(exclude_categories=()))  # lone surrogates too
zones = st.one_of(
    st.none(),
    st.sampled_from([UTC, ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=1), "CET")]),
    st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone),
)
atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    texts,
    st.binary(),
    st.binary().map(bytearray),
    st.complex_numbers(),
    st.decimals(),
    st.uuids(),
    st.dates(),
    st.times(timezones=zones),
    st.datetimes(timezones=zones),
    st.timedeltas(),
    st.builds(range, st.integers(), st.integers(), st.integers(1)),
    st.sampled_from([Path("a/b"), PurePosixPath("/x"), PureWindowsPath("c:\\x")]),
)
keys = st.one_of(texts, st.integers(), st.none(), st.just("~"), st.tuples(texts, st.integers()))
values = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(keys, inner),
        st.dictionaries(texts, inner),
        st.sets(st.one_of(texts, st.integers(), st.binary())),
        st.frozensets(st.tuples(texts, st.integers())),
    ),
    max_leaves=20,
)


@settings(max_examples=500)
@given(values)
def test_whatever_is_encoded_comes_back_the_same(value):
    assert same(again(value), value)


@settings(max_examples=200)
@given(values)
def test_encoding_what_came_back_gives_the_same_bytes(value):
    data = encode(value, what=WHAT)
    assert encode(decode(data, what=WHAT), what=WHAT) == data


@settings(max_examples=300)
@given(st.binary() | values.map(lambda value: encode(value, what=WHAT)), st.data())
def test_damaged_data_gives_a_value_or_NotDecodable_and_nothing_else(data, draw):
    cut = draw.draw(st.integers(0, len(data)))
    damaged = data[:cut] + draw.draw(st.binary(max_size=3)) + data[cut + 1 :]
    try:
        decode(damaged, what=WHAT)
    except NotDecodable as error:
        assert WHAT in str(error)


@pytest.mark.parametrize("value", [None, True, 0, -1, 1.5, "x", [1, "a", None], {"a": {"b": []}}])
def test_plain_values_are_plain_json(value):
    assert json.loads(encode(value, what=WHAT)) == value


@pytest.mark.parametrize(
    "value",
    [
        {"~": "tuple", "v": [1]},
        {"~": 1},
        {"a": {"~": None, "b": 2}},
        ["~", {"~~": "~"}],
        {1: "a", "1": "b", None: 3, (1, 2): 4, False: 5},
        {},
        (),
        set(),
        [[], {}, ()],
        {frozenset({1, frozenset({2})})},
        -0.0,
        "\ud800 and \x00 and 😀",
        {"\udfff": "\udc80"},
        datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime(1, 1, 1),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-5, seconds=1))),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(0), "GMT")),
        time(1, 2, 3, 4, tzinfo=UTC),
        timedelta.min,
        timedelta.max,
        Decimal("-0.0E+7"),
        Decimal("sNaN123"),
        complex(math.nan, -math.inf),
        complex(-0.0, 0.0),
        range(10**30, -5, -7),
        UUID(int=5),
        b"",
        bytearray(b"\x00\xff"),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_corner_cases_come_back_the_same(value):
    assert same(again(value), value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_floats_that_json_lacks_are_tagged(value):
    assert b"NaN" not in encode([value, 1.0], what=WHAT)
    assert same(again([value, 1.0]), [value, 1.0])


@pytest.mark.parametrize("digits", [18, 19, 20, 4300, 4301, 100_000])
def test_ints_of_any_length_come_back(digits):
    for value in (10**digits, -(10**digits)):
        assert again(value) == value
        assert again([value, 1]) == [value, 1]
    assert again([2**63, -(2**63), 2**63 + 1]) == [2**63, -(2**63), 2**63 + 1]


@pytest.mark.parametrize("kind", [set, frozenset])
def test_the_bytes_of_a_set_do_not_depend_on_its_order(kind):
    names = [f"name{i}" for i in range(100)]
    assert encode(kind(names), what=WHAT) == encode(kind(reversed(names)), what=WHAT)


def test_the_bytes_of_a_set_are_the_same_in_every_process():
    code = (
        "from holdfast.codec import *; import sys;"
        "sys.stdout.buffer.write(encode({'a','b','c',('d',1),frozenset('ef')}, what='x'))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "src"},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


def test_text_that_is_not_ascii_is_kept_readable():
    assert encode("漢字", what=WHAT) == '"漢字"'.encode()


def test_a_digest_has_16_bytes_and_tells_payloads_apart():
    assert len(digest(b"a")) == 16
    assert digest(b"a") == digest(b"a") != digest(b"b")


# --- limits


def nested(levels: int, wrap: Any = lambda inner: [inner]) -> Any:
    value = wrap(None)
    for _ in range(levels - 1):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    "wrap", [lambda x: [x], lambda x: {"k": x}, lambda x: (x,), lambda x: {1: x}]
)
def test_nesting_is_limited_and_never_a_RecursionError(wrap):
    deep = nested(LEVELS_MAX, wrap)
    assert again(deep) == deep
    for levels in (LEVELS_MAX + 1, 100_000):
        with pytest.raises(NotEncodable, match="nested more than 200 levels") as caught:
            encode(nested(levels, wrap), what=WHAT)
        assert WHAT in str(caught.value) and len(str(caught.value)) < 500


def test_a_cyclic_value_is_refused():
    cyclic: list[Any] = [1]
    cyclic += [cyclic, cyclic]
    with pytest.raises(NotEncodable, match="contains itself"):
        encode(cyclic, what=WHAT)
    looped: dict[str, Any] = {}
    looped["me"] = looped
    with pytest.raises(NotEncodable, match=r"value\['me'\]\['me'\]"):
        encode(looped, what=WHAT)


def test_a_deep_value_comes_back_even_where_the_stack_is_nearly_full():
    deep = nested(LEVELS_MAX, lambda x: (x,))
    data = encode(deep, what=WHAT)

    def at_depth(frames: int, call: Any) -> Any:
        return call() if frames == 0 else at_depth(frames - 1, call)

    room = sys.getrecursionlimit() - 150
    assert at_depth(room, lambda: encode(deep, what=WHAT)) == data
    assert at_depth(room, lambda: encode(decode(data, what=WHAT), what=WHAT)) == data


def test_deeply_nested_json_from_elsewhere_is_refused():
    with pytest.raises(NotDecodable):
        decode(b"[" * 100_000 + b"]" * 100_000, what=WHAT)


def test_a_payload_over_the_limit_is_refused_by_name(monkeypatch):
    monkeypatch.setattr("holdfast.codec.payload.PAYLOAD_BYTES_MAX", 100)
    assert encode("x" * 98, what=WHAT)
    with pytest.raises(PayloadTooLarge, match=r"step 'ask' of run 'r1'.*101 bytes"):
        encode("x" * 99, what=WHAT)
    with pytest.raises(PayloadTooLarge):
        encode(b"x" * 100, what=WHAT)


@pytest.mark.parametrize("value", ["é" * 2**17, b"\x00" * 2**17, ["x"] * 2**15])
def test_large_values_take_time_in_proportion(value):
    def seconds(factor: int) -> float:
        large = value * factor
        best = 1e9
        for _ in range(3):
            began = clock.thread_time()
            assert decode(encode(large, what=WHAT), what=WHAT) == large
            best = min(best, clock.thread_time() - began)
        return best

    # Of the processor, which is quicker at one time than at another. Quadratic behaviour would be
    # 4,096 times.
    assert seconds(64) < 512 * seconds(1)


@pytest.mark.full
@pytest.mark.parametrize("value", ["x" * 100_000_000, b"x" * 100_000_000], ids=["str", "bytes"])
def test_100_megabytes_come_back(value):
    assert again(value) == value


# --- what is refused


class Text(str):
    pass


class Strange:
    pass


class Lisbon(tzinfo):
    def utcoffset(self, dt):
        return timedelta(0)

    dst = tzname = utcoffset


@pytest.mark.parametrize(
    ("value", "path", "kind", "cure"),
    [
        ({"items": [0, {"client": Strange()}]}, "['items'][1]['client']", "Strange", "register("),
        ((1, Strange()), "value[1]", "Strange", "plain data"),
        ({1: Strange()}, "value[1]", "Strange", "plain data"),
        ([Text("a")], "value[0]", "Text", "register("),
        ([OrderedDict(a=1)], "value[0]", "OrderedDict", "register("),
        ({Text("k"): 1}, "value['k']", "Text", "register("),
        (lambda: 1, "value", "function", "plain data"),
        (Strange, "value", "type", "plain data"),
        ([datetime(2026, 1, 1, tzinfo=Lisbon())], "value[0]", "Lisbon", "zoneinfo"),
        (iter(()), "value", "iterator", "plain data"),
    ],
)
def test_a_refusal_names_the_step_the_path_the_type_and_the_cure(value, path, kind, cure):
    with pytest.raises(NotEncodable) as caught:
        encode(value, what=WHAT)
    text = str(caught.value)
    assert WHAT in text and path in text and kind in text and cure in text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        b"[1,",
        b"NaN",
        b"[Infinity]",
        b'"\xff"',
        b"1" * 5000,
        b'{"~":"future"}',
        b'{"~":["list"]}',
        b'{"~":"tuple"}',
        b'{"~":"tuple","v":7}',
        b'{"~":"set","v":[[]]}',
        b'{"~":"dict","v":[[1]]}',
        b'{"~":"bytes","v":"not base64"}',
        b'{"~":"int","v":"__import__"}',
        b'{"~":"float","v":"1.0"}',
        b'{"~":"datetime","v":"never"}',
        b'{"~":"datetime","v":"2026-01-01T00:00:00","tz":"../../etc/passwd"}',
        b'{"~":"path","k":"os","v":"x"}',
        b'{"~":"error"}',
        b'{"~":"data","c":"os:system","v":{}}',
        b'{"~":"enum","c":7,"v":"A"}',
        b'{"~":"custom","c":"builtins:eval","v":"1"}',
    ],
)
def test_damaged_data_is_refused(data):
    with pytest.raises(NotDecodable, match=WHAT):
        decode(data, what=WHAT)


def test_a_refusal_to_decode_names_the_path():
    with pytest.raises(NotDecodable, match=r"value\['a'\]\[1\] "):
        decode(b'{"a":[0,{"~":"future"}]}', what=WHAT)


def test_importing_the_codec_imports_neither_pydantic_nor_pickle_nor_inspect():
    code = (
        "import sys; sys.modules['holdfast'] = type(sys)('holdfast');"
        "sys.modules['holdfast'].__path__ = ['src/holdfast'];"
        "import holdfast.codec; print(*{'pydantic', 'pickle', 'inspect'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    loaded = set(result.stdout.decode().split())
    # dataclasses itself imports inspect, up to Python 3.13 at least.
    assert loaded <= {"inspect"}


def test_the_public_names_are_pinned():
    assert codec.__all__ == sorted(codec.__all__)
    assert all(hasattr(codec, name) for name in codec.__all__)
