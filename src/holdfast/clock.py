"""Where time comes from.

Timestamps that are kept (journal, deadlines) are whole microseconds since 1970 in UTC, so that they
compare and store exactly. A Clock says what time it is and when to wake a waiter; it does not
promise to be steady: the wall clock may jump, and only leases (see store/) are immune to that.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

Micros = int
"""Microseconds since 1970-01-01T00:00Z."""

NEVER: Micros = 253_370_764_800_000_000
"""The year 9999: for a time that has to be given, and is not to come."""


def to_micros(duration: timedelta) -> Micros:
    return duration // timedelta(microseconds=1)


def to_datetime(at: Micros) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at)


class Alarm(Protocol):
    """A scheduled call that can still be called off."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> Micros: ...

    def call_at(
        self, at: Micros, callback: Callable[[], object], call_later: Callable[..., Alarm]
    ) -> Alarm:
        """Calls back on the event loop when it is `at`; `call_later` is the loop's own."""
        ...


class SystemClock:
    ahead: Micros = 0
    """How far this machine's clock is ahead of the one that all workers of a store go by."""

    # A loop timer of a month or more would meet platform limits; a longer wait is cut up.
    _nap_seconds_max = 86_400.0

    def now(self) -> Micros:
        return time.time_ns() // 1000 - self.ahead

    def call_at(
        self, at: Micros, callback: Callable[[], object], call_later: Callable[..., Alarm]
    ) -> Alarm:
        return _SystemAlarm(self, at, callback, call_later)


class _SystemAlarm:
    """Re-arms until the wall clock itself says it is time."""

    __slots__ = ("_at", "_call_later", "_callback", "_clock", "_handle")

    def __init__(
        self,
        clock: SystemClock,
        at: Micros,
        callback: Callable[[], object],
        call_later: Callable[..., Alarm],
    ) -> None:
        self._clock, self._at, self._callback = clock, at, callback
        self._call_later = call_later
        self._handle: Alarm = self._arm()

    def _arm(self) -> Alarm:
        seconds = max(0.0, (self._at - self._clock.now()) / 1e6)
        return self._call_later(min(seconds, SystemClock._nap_seconds_max), self._ring)

    def _ring(self) -> None:
        # Loop timers may fire a little early: they are rounded to the loop's clock resolution.
        if self._clock.now() >= self._at:
            self._callback()
        else:
            self._handle = self._arm()

    def cancel(self) -> None:
        self._handle.cancel()


class FakeClock:
    """A clock that moves only when told to, for tests."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = to_micros(start - datetime.fromtimestamp(0, UTC))
        self._alarms: list[_FakeAlarm] = []
        self._count = 0
        self._prune_at = 64

    def now(self) -> Micros:
        return self._now

    def call_at(
        self, at: Micros, callback: Callable[[], object], call_later: Callable[..., Alarm]
    ) -> Alarm:
        self._count += 1
        if len(self._alarms) >= self._prune_at:
            self._prune()
        alarm = _FakeAlarm(at, self._count, callback, asyncio.get_running_loop())
        heapq.heappush(self._alarms, alarm)
        if at <= self._now:
            self._ring_due()
        return alarm

    def advance(self, by: timedelta) -> None:
        """Moves time on; alarms that fall due are rung in order, each at its own time."""
        self._move(self._now + to_micros(by))

    def next_alarm(self) -> Micros | None:
        while self._alarms and self._alarms[0].cancelled:
            heapq.heappop(self._alarms)
        return self._alarms[0].at if self._alarms else None

    def advance_to_next(self) -> bool:
        """Jumps to the next alarm, if there is one."""
        at = self.next_alarm()
        if at is None:
            return False
        self._move(max(at, self._now))
        return True

    def _prune(self) -> None:
        """Forgets cancelled alarms: most are, long before their time."""
        self._alarms = [alarm for alarm in self._alarms if not alarm.cancelled]
        heapq.heapify(self._alarms)
        self._prune_at = max(64, 2 * len(self._alarms))

    def _move(self, to: Micros) -> None:
        self._now = to
        self._ring_due()

    def _ring_due(self) -> None:
        while (at := self.next_alarm()) is not None and at <= self._now:
            alarm = heapq.heappop(self._alarms)
            # An empty context: the ringing belongs to no run, whoever happens to move the clock.
            alarm.loop.call_soon(alarm.ring, context=contextvars.Context())


class _FakeAlarm:
    __slots__ = ("at", "callback", "cancelled", "loop", "order")

    def __init__(
        self,
        at: Micros,
        order: int,
        callback: Callable[[], object],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.at, self.order, self.callback, self.loop = at, order, callback, loop
        self.cancelled = False

    def __lt__(self, other: _FakeAlarm) -> bool:
        return (self.at, self.order) < (other.at, other.order)

    def ring(self) -> None:
        if not self.cancelled:
            self.callback()

    def cancel(self) -> None:
        self.cancelled = True
        self.callback = _nothing  # it may hold a whole run in memory


def _nothing() -> None:
    return None
