"""Queues and limiters in PostgreSQL: each verb is one call, sent again under its id if need be."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.clock import Micros
from holdfast.errors import UnknownQueue
from holdfast.store.base import Reservation
from holdfast.store.postgres_link import Link
from holdfast.types import QueueRow


class Queues:
    """The store's verbs for them."""

    _link: Link
    _sql: dict[str, str]

    async def declare(self, queues: Sequence[QueueRow]) -> None:
        if not queues:
            return
        # Of one that is declared twice, the last word counts.
        said = {
            q.name: (q.concurrency, q.per_worker, q.rate_count, q.rate_micros, q.rate_burst)
            for q in queues
        }
        columns = zip(*said.values(), strict=True)
        await self._link.write("declare_queues", list(said), *map(list, columns))

    async def pause_queue(self, queue: str, *, paused: bool = True) -> None:
        (code,) = await self._link.write("pause_queue", queue, paused)
        if code == 1:
            raise UnknownQueue(
                f"There is no queue {queue!r}: nobody declared it or put runs into it."
            )

    async def queues(self, now: Micros) -> list[QueueRow]:
        return [QueueRow(*row) for row in await self._link.read(self._sql["queues"], now)]

    async def reserve(self, reservations: Sequence[Reservation], now: Micros) -> list[Micros]:
        if not reservations:
            return []
        asked = [(one.name, one.interval, one.burst, one.place) for one in reservations]
        columns = zip(*asked, strict=True)
        return await self._link.write("reserve", *map(list, columns), now)

    async def hold_off(self, name: str, until: Micros) -> None:
        await self._link.write("hold_off", name, until)
