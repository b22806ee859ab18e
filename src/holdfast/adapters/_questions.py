"""What people are asked: short, and plain data, whatever a framework or its user has put there.

A question is for people's eyes and never the cause of a failure: what cannot be encoded is shown as
its text, what is too long is cut.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import json
import math
from collections.abc import Mapping
from typing import Any

CHARS_MAX = 2000
_PARTS_MAX = 200
_LEVELS_MAX = 8
_CUT = "…"


def question(asked: Any) -> Any:
    """As `prompt=` of a promise takes it."""
    try:
        plain = _Plain().make(asked, _LEVELS_MAX)
        text = json.dumps(plain, ensure_ascii=False)
    except Exception:  # a number of thousands of digits, say
        return type(asked).__name__
    return plain if len(text) <= CHARS_MAX else _short(text)


def about_call(tool: Any, arguments: Any, **more: Any) -> Any:
    """A question about a call of a tool. more: what else there is to say, if not None."""
    known = {name: value for name, value in more.items() if value is not None}
    return question({"tool": tool, "arguments": arguments, **known})


def _short(text: str) -> str:
    return text if len(text) <= CHARS_MAX else text[: CHARS_MAX - 1] + _CUT


class _Plain:
    def __init__(self) -> None:
        self._left = _PARTS_MAX

    def make(self, value: Any, levels: int) -> Any:
        self._left -= 1
        if value is None or type(value) in (bool, int):
            return value
        if type(value) is float and math.isfinite(value):
            return value
        if type(value) is str:
            return _short(value)
        try:
            found = self._parts(value, levels - 1)
        except Exception:  # whatever a class of the user's does
            found = None
        return _text(value) if found is None else found

    def _parts(self, value: Any, levels: int) -> Any:
        if levels < 0 or self._left < 0:
            return _CUT
        if isinstance(value, enum.Enum):
            return self.make(value.value, levels)
        if isinstance(value, Mapping):
            pairs = itertools.islice(value.items(), _PARTS_MAX)
            return {_text(name): self.make(item, levels) for name, item in pairs}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.make(item, levels) for item in itertools.islice(value, _PARTS_MAX)]
        names: Any = ()
        if hasattr(type(value), "model_fields"):  # of pydantic
            names = type(value).model_fields
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
        if not names:
            said = getattr(value, "text", None)  # of a message
            return self.make(said, levels) if isinstance(said, str) else None
        found = {name: getattr(value, name) for name in names}
        given = {name: item for name, item in found.items() if item is not None}
        return {name: self.make(item, levels) for name, item in given.items()}


def _text(value: Any) -> str:
    try:
        return _short(str(value))
    except Exception:
        return type(value).__name__
