"""What a step was given, and who may have changed it in place.

A step that appends to a list it was given does so when it is executed, and not when it is replayed:
the code after it goes on with another list. To look at every argument again after each step would
cost more than it is worth, so this is done when a run has diverged, and in tests.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.errors import ReplayWarning
from holdfast.types import Entry, Kind

_SHOWN_MAX = 120
_SUSPECTS_MAX = 3


def why_others(
    recorded: Entry,
    asked: bytes,
    earlier: Iterable[Entry],
    input_of: Callable[[Entry], bytes | None],
) -> str:
    """How the arguments differ from the recorded ones, and which steps were given just what is
    asked with now: perhaps they changed it afterwards."""
    was, now = _parsed(input_of(recorded)), _parsed(asked)
    names = [name for name in now if name in was and was[name] != now[name]]
    said = [f"{name!r} was {_shown(was[name])} and is now {_shown(now[name])}" for name in names]
    changed = {_text(value) for name in names for value in _differing(was[name], now[name])}
    suspects = [
        entry.key
        for entry in earlier
        if entry.kind is Kind.STEP and any(c in (input_of(entry) or b"") for c in changed)
    ]
    if suspects:
        said.append(
            f"{', '.join(suspects[-_SUSPECTS_MAX:])} was given just that: a step that changes its "
            "argument in place does so only when it is executed, not on replay. Let it return what "
            "it makes"
        )
    return "".join(f"{sentence}.\n" for sentence in said)


def warn_if_changed(before: bytes, after: Callable[[], bytes], key: str, fn: Any) -> None:
    """A ReplayWarning if a step that was executed left its arguments other than they were."""
    try:
        now = after()
    except Exception:  # what is in them now cannot even be recorded
        now = b"{}"
    if now == before:
        return
    was, is_now = _parsed(before), _parsed(now)
    names = ", ".join(repr(name) for name in was if was[name] != is_now.get(name))
    warnings.warn_explicit(
        f"step {key} changed its argument {names} in place, and will not on replay: what comes "
        "after it would go on with the old one. Return what it makes instead",
        ReplayWarning,
        fn.__code__.co_filename,
        fn.__code__.co_firstlineno,
    )


def _parsed(arguments: bytes | None) -> dict[str, Any]:
    found = json.loads(arguments or b"{}")
    return found if isinstance(found, dict) else {}


def _differing(was: Any, now: Any) -> Iterator[Any]:
    """The lists and dicts on the way to what differs."""
    if was == now or not isinstance(now, (list, dict)):
        return
    yield now
    if isinstance(was, dict) and isinstance(now, dict):
        for key in was.keys() & now.keys():
            yield from _differing(was[key], now[key])
    elif isinstance(was, list) and isinstance(now, list):
        for one, other in zip(was, now, strict=False):
            yield from _differing(one, other)


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _shown(value: Any) -> str:
    text = _text(value).decode()
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX // 2]}…{text[-40:]}"
