"""What an app does with queues: declares their limits, shows them, stops and reopens them."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.clock import Clock
from holdfast.errors import BadArguments
from holdfast.limits import Queue
from holdfast.store.base import Store
from holdfast.types import QueueRow


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
        await self.store.pause_queue(name)

    async def resume_queue(self, name: str) -> None:
        """Lets the runs of a paused queue go on."""
        await self.store.pause_queue(name, paused=False)


def queues_listed(given: Iterable[Queue]) -> list[Queue]:
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
