"""What is stored of an input, and that it is the whole of it again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast import codec
from holdfast.engine.inputs import BASES_BYTES_MAX, WHOLE_MAX, Inputs, with_whole_inputs
from holdfast.types import Entry, Kind

PARTS = st.lists(
    st.sampled_from([b"a" * 3000, b"b" * 3000, b"ab" * 2000, b"]", b"~", b'"', "ä".encode() * 900]),
    max_size=8,
).map(b"".join)


def step(seq: int, payload: bytes, stored: bytes, *, failed: bool = False) -> Entry:
    digest = codec.digest(payload)
    key = f"/ask#{seq}"
    return Entry(seq, Kind.STEP, key, seq, failed=failed, digest=digest, input=stored)


def recorded(payloads: list[bytes]) -> list[Entry]:
    """A journal of steps with these inputs, one after the other."""
    known, entries = Inputs(), []
    for seq, payload in enumerate(payloads, 1):
        stored = known.shortened(payload)
        known.succeeded(codec.digest(payload), payload, stored)
        entries.append(step(seq, payload, stored))
    return entries


@given(st.lists(PARTS.map(lambda parts: b'{"x":"' + parts + b'"}'), max_size=8))
def test_every_input_is_whole_again(payloads: list[bytes]) -> None:
    entries = recorded(payloads)
    assert [entry.input for entry in with_whole_inputs(entries)] == payloads
    known = Inputs()
    for entry, payload in zip(entries, payloads, strict=True):
        known.load(entry)
        assert known.whole(entry) == payload
    for payload in payloads:
        assert len(known.shortened(payload)) <= len(payload)


def test_small_inputs_are_stored_as_they_are() -> None:
    payload = b'"' + b"x" * (WHOLE_MAX - 2) + b'"'
    assert [entry.input for entry in recorded([payload, payload])] == [payload, payload]


def test_what_stands_before_and_behind_a_change_is_stored_once() -> None:
    before, behind = b'{"messages":["' + b"m" * 5000, b'"],"tools":["' + b"t" * 5000 + b'"]}'
    first, second = recorded([before + behind, before + b'","and more' + behind])
    assert first.input == before + behind
    assert second.input is not None and second.input.endswith(b'],"and more"')
    assert len(second.input) < 80


def test_an_input_that_is_given_again_is_found_though_it_goes_on_from_a_later_one() -> None:
    first = b"x" * 5000
    entries = recorded([first, first + b"y", first])
    assert [entry.input for entry in with_whole_inputs(entries)] == [first, first + b"y", first]
    known = Inputs()
    for entry in entries:
        known.load(entry)
    assert [known.whole(entry) for entry in entries] == [first, first + b"y", first]


def test_no_input_goes_on_from_that_of_a_step_that_failed() -> None:
    payload = b"x" * 5000
    known = Inputs()
    known.load(step(1, payload, payload, failed=True))
    assert known.shortened(payload + b"y") == payload + b"y"


def test_an_input_whose_beginning_is_gone_is_none() -> None:
    _, second = recorded([b"x" * 5000, b"x" * 5000 + b"y"])
    (shown,) = with_whole_inputs([second])
    assert shown.input is None
    assert Inputs().whole(second) is None


def test_what_is_remembered_for_later_inputs_is_bounded() -> None:
    known = Inputs()
    huge = [bytes([letter]) * (BASES_BYTES_MAX // 2) for letter in b"abc"]
    for payload in huge:
        known.succeeded(codec.digest(payload), payload, payload)
    assert known.shortened(huge[0]) == huge[0]  # forgotten
    assert len(known.shortened(huge[2])) < 80
    alone = b"z" * (BASES_BYTES_MAX + 1)
    known.succeeded(codec.digest(alone), alone, alone)
    assert len(known.shortened(alone + b"!")) < 80
