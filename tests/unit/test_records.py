"""Options are values: shown with all fields, equal if these are, and never changed."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.engine.workflow import RunOptions
from holdfast.types import Entry, Kind

MINUTE = timedelta(minutes=1)

OPTIONS: list[tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = [
    (holdfast.Decision, {"approved": True}, {"approved": True, "by": "ada"}),
    (holdfast.Limit, {"name": "a", "per_hour": 1}, {"name": "a", "per_hour": 2}),
    (holdfast.Queue, {"name": "a"}, {"name": "a", "rate": holdfast.Rate(1, MINUTE)}),
    (holdfast.Rate, {"count": 1, "per": MINUTE}, {"count": 2, "per": MINUTE}),
    (holdfast.Retention, {}, {"runs": MINUTE}),
    (holdfast.Retry, {}, {"attempts": 2}),
    (holdfast.RunFilter, {}, {"limit": 3}),
    (holdfast.WorkerOptions, {}, {"lease": MINUTE}),
    (RunOptions, {}, {"session": "ada"}),
]


@pytest.mark.parametrize(("make", "given", "other"), OPTIONS)
def test_options_are_equal_if_all_their_fields_are(
    make: Callable[..., Any], given: dict[str, Any], other: dict[str, Any]
) -> None:
    assert make(**given) == make(**given) != make(**other)
    assert len({make(**given), make(**given), make(**other)}) == 2
    assert make(**given) != tuple(dataclasses.asdict(make(**given)).values())


@pytest.mark.parametrize(("make", "given", "other"), OPTIONS)
def test_options_never_change_and_can_be_copied_with_changes(
    make: Callable[..., Any], given: dict[str, Any], other: dict[str, Any]
) -> None:
    made = make(**given)
    for name in other:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, name, None)
    assert dataclasses.replace(made, **other) == make(**other)
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_record_shows_its_fields() -> None:
    assert repr(holdfast.Decision(True, by="ada")) == (
        "Decision(approved=True, by='ada', comment=None)"
    )


def test_a_record_that_can_change_has_no_hash() -> None:
    entry = Entry(1, Kind.STEP, "/ask#0", 7)
    assert entry == Entry(1, Kind.STEP, "/ask#0", 7) != Entry(2, Kind.STEP, "/ask#0", 7)
    with pytest.raises(TypeError, match="unhashable"):
        hash(entry)
