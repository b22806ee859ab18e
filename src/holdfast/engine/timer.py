"""Timers with absolute deadlines: `holdfast.sleep`, and what asyncio's own timers become in a
workflow's body.

A timer falls due by the wall clock, whenever its run was recovered in between; it never fires
early.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from holdfast.clock import Micros, to_datetime, to_micros
from holdfast.engine.context import Claim, Scope, scope
from holdfast.engine.depth import refuse_if_too_deep
from holdfast.engine.execution import Execution
from holdfast.engine.frame import Wait
from holdfast.engine.preview import after, ended, read_in
from holdfast.engine.thread import portal, submit
from holdfast.engine.value import remembered_as
from holdfast.engine.wait import Waitable, blocks_here, due, external, nothing, required_scope
from holdfast.errors import BadValue, Suspended
from holdfast.types import Entry, Kind


class Timer(Waitable[None]):
    def __init__(self, where: Scope, until: timedelta | Micros) -> None:
        run = where.frame.run
        claim = self._claim = where.claim("sleep")
        if where.frame.is_root:
            # The body's own time stands still between completions, so this is the same on every
            # replay.
            self.due_at = _due_at(until, run.now)
            previews = read_in(where)
            if previews:  # on replay, they have ended when it is made
                after(previews, lambda _: self._begin(_due_at(until, run.now)))
        else:
            kept = Claim(where, f"{claim.key}.until", "until", 0)
            self.due_at = remembered_as(where, kept, lambda: _due_at(until, run.tick()), int)

    def _begin(self, due_at: Micros) -> None:
        self.due_at = due_at

    async def _wait(self) -> None:
        run = self._claim.scope.frame.run
        if run.previews and not run.journal.holds(self._claim):
            await ended(run, scope())
        label = f"a timer due {to_datetime(self.due_at):%Y-%m-%d %H:%M:%S} UTC"
        await external(self._claim, Kind.TIMER, nothing, label=label, due_at=self.due_at)


def _due_at(until: timedelta | Micros, now: Micros) -> Micros:
    return now + to_micros(until) if isinstance(until, timedelta) else max(now, until)


DURATION_MAX = timedelta(days=365_000)


def sleep(duration: timedelta | float) -> Timer:
    """Waits until an absolute deadline: crashes and redeploys do not prolong it. In a `def`
    workflow it waits at the call."""
    if not isinstance(duration, timedelta):
        if not isinstance(duration, int | float) or not math.isfinite(duration):
            raise BadValue(f"sleep() takes a timedelta or seconds, not {duration!r}")
        duration = timedelta(seconds=min(duration, 1e11))
    if duration < timedelta(0):
        raise BadValue(f"sleep() cannot wait for a negative time ({duration})")
    if duration > DURATION_MAX:
        raise BadValue(f"sleep() waits for 1,000 years at most, not {duration}")
    return _begun(required_scope("sleep()"), duration)


def sleep_until(when: datetime) -> Timer:
    """Waits until a point in time."""
    if when.tzinfo is None:
        raise BadValue("sleep_until() needs a datetime with a time zone")
    return _begun(required_scope("sleep_until()"), to_micros(when - to_datetime(0)))


def _begun(where: Scope, until: timedelta | Micros) -> Timer:
    if not blocks_here(where):
        return Timer(where, until)

    async def call(_: object) -> Timer:
        timer = Timer(where, until)
        await timer
        return timer

    done: Timer = portal(where, call)
    return done


_RELEASE: Any = getattr(asyncio.tasks, "_release_waiter", None)


class LoopTimer:
    """What `loop.call_at` and `call_later` return in a workflow's body: a durable timer.

    It stands in for asyncio.TimerHandle, and receives its own completion.
    """

    __slots__ = (
        "_alarm",
        "_args",
        "_callback",
        "_context",
        "_done",
        "_handle",
        "_run",
        "_wait",
        "_when",
        "covers",
    )

    def __init__(
        self,
        run: Execution,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        when: float,
    ) -> None:
        self._run, self._callback, self._args = run, callback, args
        self._context, self._when = context, when
        self._done = False
        self._alarm: Any = None
        self._handle: Any = None
        self._wait: Wait | None = None
        # `asyncio.sleep` waits for a bare future that its timer sets: that is no plain I/O.
        self.covers = args[0] if args and asyncio.isfuture(args[0]) else None

    def arm(self, where: Scope, due_at: Micros) -> None:
        run, claim = self._run, where.claim("timer")
        label = f"a timer due {to_datetime(due_at):%Y-%m-%d %H:%M:%S} UTC"
        wait = self._wait = Wait(
            Kind.TIMER, claim, self, decode=nothing, label=label, due_at=due_at
        )
        recorded = run.journal.find(claim, Kind.TIMER)
        run.wait_for(wait)
        if recorded is not None:
            where.frame.ask(wait)
            return
        entry = Entry(0, Kind.TIMER, claim.key, due_at, position=claim.position)
        previews = read_in(where)

        def arrive(error: BaseException | None) -> None:
            if error is None:
                due(run, entry, wait)
            else:
                wait.fail(error)

        self._alarm = run.call_at(due_at, lambda: after(previews, arrive))

    # As a receiver

    def done(self) -> bool:
        return self._done

    def set_result(self, result: object, /) -> None:
        self._finish()
        loop = self._run.loop
        self._handle = loop.call_soon(self._callback, *self._args, context=self._context)

    def set_exception(self, exception: BaseException, /) -> None:
        self._finish()
        # `wait_for` and `wait` hear of it from what they wait for; told here, they would never look
        # at that, and asyncio would complain.
        if self.covers is not None and not self.covers.done() and self._callback is not _RELEASE:
            self.covers.set_exception(exception)

    def _finish(self) -> None:
        self._done = True
        if self._wait is not None:
            self._run.done_waiting(self._wait)
            self._wait = None  # they know each other: only the garbage collector would free them
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    # As a timer handle

    def cancel(self) -> None:
        if not self._done:
            assert self._wait is not None
            claim = self._wait.claim
            self._finish()
            claim.scope.frame.asked.pop(claim.key, None)
        elif self._handle is not None:
            self._handle.cancel()  # it fired, but its callback has not run yet

    def cancelled(self) -> bool:
        return self._done

    def when(self) -> float:
        return self._when


class BodyTimers:
    """What the loop hooks call inside a run."""

    def timer(
        self,
        where: Scope,
        delay_seconds: float,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> LoopTimer:
        run = where.frame.run
        if run.closed:
            raise Suspended
        refuse_if_too_deep("a timer")
        timer = LoopTimer(run, callback, args, context, when)
        timer.arm(where, run.now + max(0, round(min(delay_seconds, 1e9) * 1e6)))
        return timer

    def submit(
        self, where: Scope, executor: Any, func: Callable[..., Any], args: tuple[Any, ...]
    ) -> Any:
        return submit(where, executor, func, args)
