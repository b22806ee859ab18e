"""A queue's limits hold over several processes, counted by an observer outside of them; a killed
worker's places come back."""

from __future__ import annotations

import asyncio
from collections import Counter

import holdfast
from holdfast.types import QueueRow
from tests.crash.agent import line
from tests.crash.fleet import SECONDS_MAX, Effect, Fleet, Observer, Process

AT_ONCE, PER_WORKER, RUNS, WORKERS, KILLS = 3, 2, 12, 3, 2


class Gate:
    """Holds every effect, and counts those that living workers are at."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._dead: set[int] = set()
        self.most = 0
        self.most_of_one = 0
        observer.holds = self._arrived

    def _arrived(self, effect: Effect) -> bool:
        held = self.held() + ([effect] if effect not in self.held() else [])
        self.most = max(self.most, len(held))
        self.most_of_one = max(self.most_of_one, *Counter(e.pid for e in held).values())
        return True

    def held(self) -> list[Effect]:
        return [e for e in self._observer.effects if e.waits and e.pid not in self._dead]

    async def is_full(self) -> list[Effect]:
        def full() -> list[Effect]:
            held = self.held()
            return held if len(held) >= AT_ONCE else []

        found: list[Effect] = await self._observer.until(full, f"{AT_ONCE} runs at work")
        return found

    async def let_everybody_go(self) -> None:
        while True:
            for effect in await self._observer.until(self.held, "the next run at work"):
                effect.let_go()

    async def kill(self, victim: Process) -> None:
        # From this moment on it does nothing any more, and others may take its places.
        self._dead.add(victim.pid)
        await victim.kill()


async def test_killed_workers_places_come_back_and_limits_are_never_exceeded(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    await app.store.declare([QueueRow("narrow", concurrency=AT_ONCE, per_worker=PER_WORKER)])
    gate = Gate(observer)
    workers = {process.pid: process for process in [await fleet.add() for _ in range(WORKERS)]}
    client = app.with_options(queue="narrow")
    runs = [
        await client.with_options(id=f"run-{n}", fairness_key=f"tenant-{n % 2}").start(line, ["it"])
        for n in range(RUNS)
    ]
    for _ in range(KILLS):
        victim = workers.pop((await gate.is_full())[0].pid)
        await gate.kill(victim)
        heir = await fleet.add()
        workers[heir.pid] = heir
        (await gate.is_full())[0].let_go()
    await gate.is_full()
    (narrow,) = [row for row in await app.queues() if row.name == "narrow"]
    assert (narrow.running, narrow.concurrency) == (AT_ONCE, AT_ONCE)
    release = asyncio.create_task(gate.let_everybody_go())
    async with asyncio.timeout(SECONDS_MAX):
        assert [len(await run.result()) for run in runs] == [1] * RUNS
    release.cancel()
    assert gate.most == AT_ONCE
    assert gate.most_of_one <= PER_WORKER
