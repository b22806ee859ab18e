"""What callers name runs by, checked before a store is asked: it could not even be asked for some
text."""

from __future__ import annotations

from holdfast.errors import BadValue, UnknownRun
from holdfast.text import A_NAME, can_be_a_name, can_be_stored
from holdfast.types import RunFilter


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
