"""What callers name runs by, checked before a store is asked: it could not even be asked for some
text."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from holdfast.errors import BadValue, UnknownRun
from holdfast.text import A_NAME, can_be_a_name, can_be_stored
from holdfast.types import RunFilter, Status


def refuse_if_no_id(run_id: object) -> None:
    if not can_be_stored(run_id):
        raise UnknownRun(f"there is no run {run_id!r}: no run can have that id")


def refuse_if_no_text(what: str, text: object) -> None:
    if not can_be_a_name(text):
        raise BadValue(f"{what} is {A_NAME}, not {text!r}")


def check_filter(which: RunFilter) -> None:
    for name in ("workflow", "session", "queue", "id_prefix", "parent"):
        text = getattr(which, name)
        if text is not None:
            refuse_if_no_text(f"RunFilter({name}=...)", text)
    statuses = which.status
    if not isinstance(statuses, AbstractSet) or not statuses <= set(Status):
        raise BadValue(f"RunFilter(status=...) is a set of statuses, not {statuses!r}")
    for name in ("limit", "created_after", "created_before"):
        number = getattr(which, name)
        if number is None and name != "limit":
            continue
        if not isinstance(number, int) or not 0 <= number < 2**63:
            raise BadValue(f"RunFilter({name}=...) is a whole number, not {number!r}")
