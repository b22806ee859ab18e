"""Steps that wait for their turn in a limiter, which all workers share.

Before each try a step takes a place in the store. If its time is to come, the place is journaled
and waited for like a back-off: a crash neither loses it nor takes a second one, and it is no try.
That the place is taken is journaled, too, before the try begins: if that dies, the next takes a
place of its own. So a crash can waste a place, and never makes a limiter admit more than it may.

A failure with Retry-After holds the limiter off for everybody, also for those who have a place.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast import retry as retries
from holdfast.clock import Micros, to_datetime, to_micros
from holdfast.errors import Suspended
from holdfast.store.base import Reservation
from holdfast.types import Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.engine.attempt import Attempt
    from holdfast.engine.execution import Execution
    from holdfast.limits import Limit


def standing_place(last: Entry) -> Micros | None:
    """The place that a step still has, by the last entry about its tries."""
    return None if last.failed or last.started_at is not None else last.due_at


class Turn:
    """One step's turn in its limiter."""

    __slots__ = ("_attempt", "_limit", "_name")

    def __init__(self, attempt: Attempt, limit: Limit) -> None:
        self._attempt, self._limit = attempt, limit
        self._name = limit.name

    async def come(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], place: Micros | None
    ) -> None:
        """Returns when the next try may begin. Raises what the limit's key function does."""
        attempt, limit = self._attempt, self._limit
        run = attempt.run
        self._name = limit.name_for(args, kwargs)
        while True:
            with _at_work(run):
                at = await run.host.limiters.reserve(
                    Reservation(self._name, limit.interval, limit.burst, place)
                )
            if at <= run.host.clock.now():
                break
            label = f"the turn of {attempt.claim.key} in the limiter {self._name!r}"
            await attempt.pause_after(self._note(at, None), label)
            await run.may_start(attempt.frame)
            place = at
        if place is not None:
            self._note(at, run.tick())
            await run.may_start(attempt.frame)

    def _note(self, place: Micros, started_at: Micros | None) -> Entry:
        attempt = self._attempt
        return attempt.run.note(
            Kind.ATTEMPT,
            attempt.claim.key,
            position=attempt.claim.position,
            attempt=attempt.number,
            digest=attempt.digest,
            input=attempt.input,
            due_at=place,
            started_at=started_at,
        )

    async def failed(self, error: Exception) -> None:
        run = self._attempt.run
        now = run.host.clock.now()
        after = retries.retry_after(error, to_datetime(now))
        if after:
            with _at_work(run):
                await run.host.limiters.hold_off(self._name, now + to_micros(after))


@contextmanager
def _at_work(run: Execution) -> Iterator[None]:
    """To ask the store takes a moment, in which the run does not merely wait."""
    run.executing += 1
    try:
        yield
    finally:
        run.executing -= 1
        if run.closed:
            raise Suspended
