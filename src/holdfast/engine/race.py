"""Races: the first of several waits, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from datetime import timedelta
from typing import Any

from holdfast.engine.execution import Execution
from holdfast.engine.rest import consume
from holdfast.engine.timer import Timer
from holdfast.engine.wait import Waitable, on_loop, required_scope
from holdfast.errors import BadValue


class Race(Waitable[tuple[str, Any]]):
    def __init__(self, run: Execution, contenders: dict[str, Any]) -> None:
        self._run = run
        self._contenders = contenders

    async def _wait(self) -> tuple[str, Any]:
        tasks = {name: asyncio.ensure_future(_entered(c)) for name, c in self._contenders.items()}
        try:
            await self._first_of(tasks.values())
            winner = next(name for name, task in tasks.items() if task.done())
        finally:
            losers = [task for task in tasks.values() if not task.done()]
            for task in losers:
                task.cancel()
            if losers:
                await asyncio.wait(losers)
            for task in tasks.values():
                consume(task)
        return winner, tasks[winner].result()

    async def _first_of(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        # Not asyncio.wait: from the future that one awaits, nobody could tell that the run only
        # waits for its own tasks and may leave memory.
        first: asyncio.Future[None] = self._run.loop.create_future()

        def done(_: object) -> None:
            if not first.done():
                first.set_result(None)

        for task in tasks:
            task.add_done_callback(done)
        self._run.transparent.add(first)
        try:
            await first
        finally:
            self._run.transparent.discard(first)


async def _entered(contender: Any) -> Any:
    return await contender


def race(**contenders: Awaitable[Any] | timedelta) -> Race:
    """Waits for the first of several things: `name, value = await race(answer=...,
    late=sleep(...))`. In a `def` workflow: `race(answer=..., late=timedelta(...)).result()`; a
    `sleep` would wait there at once.

    Losing steps are cancelled, losing promises stay open, losing child runs go on.
    """
    if not contenders:
        raise BadValue("race() needs at least one contender")
    where = required_scope("race()")

    def entered() -> Race:
        return Race(
            where.frame.run,
            {
                name: Timer(where, c) if isinstance(c, timedelta) else c
                for name, c in contenders.items()
            },
        )

    return on_loop(where, entered)
