"""When a schedule ticks: cron expressions in a time zone, and intervals.

A tick is a point in time. In a zone whose clocks are put forward and back, an expression that names
its hour and minute ticks once a day all the same: what falls into the hour that is left out ticks
when that hour would have begun, what falls into the hour that comes twice ticks the first time. An
expression whose minutes or hours begin with `*`, or that has seconds, goes by the time that passes:
nothing happens in the hour that is left out, and the other one is gone through twice.

The arithmetic is cronsim's, which is loaded only where there are schedules.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

from holdfast.clock import Micros, to_datetime, to_micros
from holdfast.errors import BadSchedule

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

CRON_CHARACTERS_MAX = 200
_EVERY = "@every "
_EVERY_MIN = timedelta(seconds=1)
_EVERY_MAX = timedelta(days=3653)
_SECOND = 1_000_000
_LAST: Micros = 253_370_764_800_000_000  # the year 9999, where the calendar ends


class Ticks:
    """The ticks of one schedule; BadSchedule if there are none."""

    def __init__(self, cron: str, zone: str) -> None:
        self._every = interval_of(cron)
        self._cron = cron
        if self._every is None:
            self._zone = _zone(zone)
            _check(cron, self._zone)

    def after(self, at: Micros) -> Micros | None:
        """The first tick later than `at`; None: there is none in 50 years."""
        return next(self.since(at), None)

    def since(self, at: Micros) -> Iterator[Micros]:
        """The ticks later than `at`, without an end as a rule."""
        if at >= _LAST:
            return iter(())
        if self._every is not None:
            return itertools.count((at // self._every + 1) * self._every, self._every)
        # After clocks were put back, cronsim may begin with a tick that has been.
        return (tick for tick in self._from(at) if tick > at)

    def last(self, until: Micros, count: int = 1) -> list[Micros]:
        """The last `count` ticks up to and including `until`, oldest first."""
        if self._every is not None:
            newest = until // self._every
            return [n * self._every for n in range(newest - count + 1, newest + 1)]
        # Going back is not quite the same as going forth, so it only says where to begin.
        begin = until + _SECOND
        for n, tick in enumerate(self._from(begin, reverse=True)):
            begin = tick
            if n > count:
                break
        found: list[Micros] = []
        for tick in self._from(begin - _SECOND):
            if tick > until:
                break
            found.append(tick)
        return found[-count:]

    def _from(self, at: Micros, *, reverse: bool = False) -> Iterator[Micros]:
        from cronsim import CronSim

        local = to_datetime(at).astimezone(self._zone)
        return (_micros(tick) for tick in CronSim(self._cron, local, reverse=reverse))


@functools.lru_cache(maxsize=256)
def ticks_of(cron: str, zone: str) -> Ticks:
    return Ticks(cron, zone)


def every(interval: timedelta) -> str:
    """An interval as it is kept in the place of a cron expression."""
    if not isinstance(interval, timedelta):
        raise BadSchedule(f"every is a timedelta, not {interval!r}")
    if not _EVERY_MIN <= interval <= _EVERY_MAX or interval.microseconds:
        raise BadSchedule(
            f"every must be whole seconds, at least one and at most ten years, not {interval}"
        )
    return f"{_EVERY}{interval // _EVERY_MIN}s"


def interval_of(cron: str) -> Micros | None:
    """The interval that `every` has written; None: it is a cron expression."""
    if not cron.startswith(_EVERY):
        return None
    seconds = cron.removeprefix(_EVERY).removesuffix("s")
    if not seconds.isdecimal() or not int(seconds):
        raise BadSchedule(f"{cron!r} is no interval")
    return int(seconds) * _SECOND


def _micros(at: datetime) -> Micros:
    return to_micros(at - to_datetime(0))


def _check(cron: str, zone: tzinfo) -> None:
    from cronsim import CronSim, CronSimError

    if len(cron) > CRON_CHARACTERS_MAX:
        raise BadSchedule(f"a cron expression has at most {CRON_CHARACTERS_MAX} characters")
    try:
        if next(CronSim(cron, to_datetime(0).astimezone(zone)), None) is None:
            raise BadSchedule(f"the cron expression {cron!r} never comes true")
    except CronSimError as error:
        raise BadSchedule(
            f"{cron!r} is no cron expression ({error}); it has five fields, minute, hour, day of "
            "month, month and day of week, as in '0 3 * * MON-FRI'"
        ) from None


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

    if name == "UTC":
        return UTC  # known also where no zones are
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    cure = (
        "a zone is named as in 'Europe/Berlin'"
        if available_timezones()
        else "this machine knows no time zones at all: pip install 'holdfast[zones]'"
    )
    raise BadSchedule(f"there is no time zone {name!r}; {cure}")
