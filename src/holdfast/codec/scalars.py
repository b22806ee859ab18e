"""Values that JSON has no word for, from the texts and numbers that people write for them.

This is for plain data from outside; what the codec itself recorded is tagged and never guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Any

# Compiled at first use: that takes longer than to load this module.
_WHOLE = r"[+-]?\d{1,4000}"  # Python refuses to read longer ones
_ISO_DURATION = (
    r"(?P<sign>[+-]?)P(?:(?P<weeks>\d+(?:\.\d+)?)W)?(?:(?P<days>\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_CLOCK_DURATION = (  # as str(timedelta) writes it
    r"(?P<sign>[+-]?)(?:(?P<days>\d+)(?: days?,?)? )?"
    r"(?P<hours>\d+):(?P<minutes>\d\d)(?::(?P<seconds>\d\d(?:\.\d{1,6})?))?"
)
_PATHS = ("Path", "PurePath", "PurePosixPath", "PureWindowsPath")


def _text(node: Any) -> str:
    if type(node) is not str:
        raise ValueError
    return node


def _timedelta(node: Any) -> timedelta:
    if type(node) in (int, float):
        return timedelta(seconds=node)
    text = _text(node)
    found = re.fullmatch(_ISO_DURATION, text) or re.fullmatch(_CLOCK_DURATION, text)
    parts = {k: v for k, v in found.groupdict().items() if v and k != "sign"} if found else {}
    if found is None or not parts:
        raise ValueError
    numbers = {name: float(number) for name, number in parts.items()}
    if found["sign"] == "-" and "day" in text:  # -1 day, 23:00:00: an hour ago
        numbers["days"] *= -1
        return timedelta(**numbers)
    return -timedelta(**numbers) if found["sign"] == "-" else timedelta(**numbers)


# These modules are slow to load, and many a program never needs them.


def _decimal(node: Any) -> Any:
    from decimal import Decimal

    if type(node) not in (int, float, str):
        raise ValueError
    return Decimal(str(node))


def _uuid(node: Any) -> Any:
    from uuid import UUID

    return UUID(_text(node))


def path(node: Any, kind: str = "Path") -> Any:
    import pathlib

    return getattr(pathlib, kind if kind in _PATHS else "Path")(_text(node))


PARSERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "datetime": (
        lambda node: datetime.fromisoformat(_text(node)),
        "a date and time such as 2026-01-31T08:00:00+00:00",
    ),
    "date": (lambda node: date.fromisoformat(_text(node)), "a date such as 2026-01-31"),
    "time": (lambda node: time.fromisoformat(_text(node)), "a time such as 08:00:00"),
    "timedelta": (_timedelta, "a duration: seconds, or a text such as PT90S or 0:01:30"),
    "decimal": (_decimal, "a decimal number"),
    "uuid": (_uuid, "a UUID"),
    "path": (path, "a path"),
    "bytes": (lambda node: _text(node).encode(), "a text, for bytes in UTF-8"),
    "bytearray": (lambda node: bytearray(_text(node).encode()), "a text, for bytes in UTF-8"),
}
"""By the names that descriptions use: what reads a value, and the words for what it can read."""


def key_of(kind: str, text: str) -> Any:
    """A dict's key that is no text, from the text that JSON makes of it."""
    if kind == "integer" and re.fullmatch(_WHOLE, text):
        return int(text)
    if kind == "number":
        return float(text)
    if kind == "boolean":
        return {"true": True, "false": False}[text]
    if kind in PARSERS:
        return PARSERS[kind][0](text)
    raise ValueError


def may_be(kind: str, node: Any) -> bool | None:
    """Whether pydantic may read a value of this kind from plain data; None: ask the parsers.

    It takes more than the parsers do: numbers in texts, points in time as numbers.
    """
    if kind in ("integer", "number"):
        return _is_number(node, whole=kind == "integer")
    if kind == "boolean":
        return type(node) in (bool, int, float, str)
    if kind in ("datetime", "date", "time", "timedelta"):
        return _is_number(node, whole=False) or _is_moment(kind, node)
    return None


def _is_number(node: Any, *, whole: bool) -> bool:
    if type(node) is str:
        try:
            node = float(node.replace("_", ""))
        except ValueError:
            return False
    if type(node) is float:
        return not whole or node.is_integer()
    return type(node) in (int, bool)


def _is_moment(kind: str, node: Any) -> bool:
    if type(node) is not str:
        return False
    readers: list[Callable[[str], Any]] = [PARSERS[kind][0]]
    if kind == "date":
        readers.append(datetime.fromisoformat)
    for read in readers:
        try:
            read(node.strip().replace("_", "T"))
            return True
        except ValueError:
            continue
    return False
