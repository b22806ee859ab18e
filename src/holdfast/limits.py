"""What users say of queues and limiters: plain values, checked when they are made."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any

from holdfast.clock import Micros, to_micros
from holdfast.errors import BadArguments
from holdfast.records import FrozenRecord
from holdfast.text import A_NAME, can_be_a_name
from holdfast.types import QueueRow

PERIOD_MAX = timedelta(days=366)
COUNT_MAX = 1_000_000_000
_RATES = ("per_second", "per_minute", "per_hour")


def _check_count(what: str, value: object, *, least: int = 1) -> None:
    if type(value) is not int or not least <= value <= COUNT_MAX:
        raise BadArguments(f"{what}: a whole number from {least} to {COUNT_MAX:,}, not {value!r}")


def _check_name(what: str, value: object) -> None:
    if not can_be_a_name(value) or not value:
        raise BadArguments(f"{what}: {A_NAME}, not {value!r}")


@dataclass(frozen=True, eq=False, repr=False)
class Rate(FrozenRecord):
    """So many in a period, spread evenly: `Rate(100, per=timedelta(minutes=1))`.

    burst: so many may come at once after a quiet time. With 1 no period sees more than the rate
    says; with more, up to `burst - 1` more.
    """

    count: int
    per: timedelta
    burst: int = 1

    def __post_init__(self) -> None:
        _check_count("Rate(count)", self.count)
        _check_count("Rate(burst=...)", self.burst)
        per: object = self.per
        if not isinstance(per, timedelta) or not timedelta(0) < per <= PERIOD_MAX:
            raise BadArguments(f"Rate(per=...): a timedelta of up to a year, not {per!r}")


@dataclass(frozen=True, eq=False, repr=False)
class Queue(FrozenRecord):
    """A named line of runs, and what it allows.

    concurrency: runs in memory at once, of all workers together; per_worker: of each. A run that
    waits for something long is not in memory, and needs a place again when it goes on.
    rate: how fast runs are begun. All of it is None by default: no limit.
    """

    name: str
    _: KW_ONLY
    concurrency: int | None = None
    per_worker: int | None = None
    rate: Rate | None = None

    def __post_init__(self) -> None:
        _check_name("Queue(name)", self.name)
        for what in ("concurrency", "per_worker"):
            value = getattr(self, what)
            if value is not None:
                _check_count(f"Queue({self.name!r}, {what}=...)", value)
        rate: object = self.rate
        if rate is not None and not isinstance(rate, Rate):
            raise BadArguments(f"Queue({self.name!r}, rate=...): a holdfast.Rate, not {rate!r}")

    @property
    def row(self) -> QueueRow:
        rate = self.rate
        return QueueRow(
            self.name,
            self.concurrency,
            self.per_worker,
            rate.count if rate else None,
            to_micros(rate.per) if rate else None,
            rate.burst if rate else 1,
        )


@dataclass(frozen=True, eq=False, repr=False)
class Limit(FrozenRecord):
    """A limiter that every step with this name shares, in all workers: `Limit("openai",
    per_minute=500)`.

    One of per_second, per_minute and per_hour says how often a step may begin. burst: so many may
    begin at once after a quiet time. key: a limiter of its own for each key; a text, or a function
    that gets the step's arguments and returns a text or a number.
    """

    name: str
    _: KW_ONLY
    per_second: float | None = None
    per_minute: float | None = None
    per_hour: float | None = None
    burst: int = 1
    key: str | Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        name, key = self.name, self.key
        _check_name("Limit(name)", name)
        rates = {what: getattr(self, what) for what in _RATES}
        given = {what: rate for what, rate in rates.items() if rate is not None}
        if len(given) != 1:
            raise BadArguments(f"Limit({name!r}): give one of per_second, per_minute, per_hour")
        for what, rate in given.items():
            number = isinstance(rate, int | float) and not isinstance(rate, bool)
            if not number or not 1e-6 <= rate <= COUNT_MAX:
                raise BadArguments(f"Limit({name!r}, {what}={rate!r}): a positive number")
        _check_count(f"Limit({name!r}, burst=...)", self.burst)
        if isinstance(key, str):
            _check_name(f"Limit({name!r}, key=...)", key)
        elif key is not None and not callable(key):
            raise BadArguments(
                f"Limit({name!r}, key=...): a text, or a function of the step's arguments, "
                f"not {key!r}"
            )

    @property
    def interval(self) -> Micros:
        """How far apart beginnings are; rounded up, so that the rate is never exceeded."""
        rates = {1: self.per_second, 60: self.per_minute, 3600: self.per_hour}
        seconds, rate = next((seconds, rate) for seconds, rate in rates.items() if rate is not None)
        return max(1, math.ceil(seconds * 1_000_000 / rate))

    def name_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The limiter of a call with these arguments."""
        key = self.key(*args, **kwargs) if callable(self.key) else self.key
        if key is None:
            return self.name
        is_key = isinstance(key, str | int) and not isinstance(key, bool)
        if not is_key or not can_be_a_name(str(key)):
            raise BadArguments(
                f"the key of Limit({self.name!r}) is a text or a whole number, not {key!r}"
            )
        return f"{self.name}/{key}"
