"""What an app does with queues: declares their limits, shows them, stops and reopens them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.client.ids import refuse_if_no_text
from holdfast.clock import Clock, Micros, to_datetime
from holdfast.errors import BadArguments
from holdfast.store import pace
from holdfast.store.base import Store
from holdfast.types import QueueRow, RunRow, Status

if TYPE_CHECKING:
    from holdfast.limits import Queue

A_WORKER = "a worker with room"


class Queueing:
    """The part of an app that is about queues."""

    @property
    def store(self) -> Store:
        raise NotImplementedError

    @property
    def clock(self) -> Clock:
        raise NotImplementedError

    async def queues(self) -> list[QueueRow]:
        """Every queue that was declared or has runs that have not ended, by name."""
        return await self.store.queues(self.clock.now())

    async def pause_queue(self, name: str) -> None:
        """Lets no run of a queue begin or go on, until it is resumed. Runs in memory go on."""
        refuse_if_no_text("the name of a queue", name)
        await self.store.pause_queue(name)

    async def resume_queue(self, name: str) -> None:
        """Lets the runs of a paused queue go on."""
        refuse_if_no_text("the name of a queue", name)
        await self.store.pause_queue(name, paused=False)

    async def _queue_waits_for(self, row: RunRow) -> str:
        if row.status is not Status.PENDING:
            return ""
        now = self.clock.now()
        found = await self.store.queues(now)
        waits = next((waits_for(q, now) for q in found if q.name == row.queue), "")
        return "" if waits == A_WORKER else waits


def queues_listed(given: Iterable[Queue]) -> list[Queue]:
    given = list(given)
    if not given:
        return []
    from holdfast.limits import Queue

    found: dict[str, Queue] = {}
    for one in given:
        if not isinstance(one, Queue):
            raise BadArguments(f"queues=[...] takes holdfast.Queue, not {one!r}")
        if found.setdefault(one.name, one) != one:
            raise BadArguments(f"queue {one.name!r} is declared twice, and differently")
    return list(found.values())


async def declare_queues(store: Store, queues: Iterable[Queue]) -> None:
    rows = [queue.row for queue in queues]
    if rows:
        await store.declare(rows)


def waits_for(row: QueueRow, now: Micros) -> str:
    """What the runs of a queue wait for that are due; empty: there are none."""
    if row.paused:
        return f"somebody to resume it: `holdfast queues resume {row.name}`"
    if not row.ready:
        return ""
    if row.concurrency is not None and row.running >= row.concurrency:
        return f"one of {row.running} runs to leave memory"
    if row.rate_count is not None and row.rate_micros is not None:
        at = pace.free_at(
            row.next_at, pace.interval(row.rate_count, row.rate_micros), row.rate_burst
        )
        if at > now:
            return f"its rate, until {to_datetime(at):%Y-%m-%d %H:%M:%S} UTC"
    return A_WORKER
