"""SIGKILL of real workers: every accepted run completes, nothing committed is done again."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

import holdfast
from holdfast import codec
from holdfast.errors import RunHalted
from holdfast.types import Kind
from tests.crash.agent import JOB, job, line
from tests.crash.fleet import SECONDS_MAX, Effect, Fleet, Observer, Process

RELEASES_MAX = 8
"""Without a kill: that there are some is not left to chance."""


class Killer:
    """Lets a few effects go on at a time, and kills workers at random moments of what follows;
    puts another in the place of each."""

    def __init__(self, fleet: Fleet, observer: Observer, seed: int) -> None:
        self._fleet, self._observer = fleet, observer
        self._random = random.Random(seed)
        self._living: list[Process] = []
        self.kills = 0
        observer.holds = lambda effect: True

    async def start(self, count: int) -> None:
        self._living += [await self._fleet.add() for _ in range(count)]

    async def kill(self) -> None:
        since = 0
        while True:
            held = await self._observer.until(self._held, "an effect that waits")
            for effect in self._random.sample(held, self._random.randint(1, min(4, len(held)))):
                effect.let_go()
            since += 1
            if self._random.random() < 0.2 or since >= RELEASES_MAX:
                since = 0
                await self._moment()
                victim = self._living.pop(self._random.randrange(len(self._living)))
                await victim.kill()
                self.kills += 1
                await self.start(1)

    def _held(self) -> list[Effect]:
        pids = {process.pid for process in self._living}
        return [e for e in self._observer.effects if e.waits and e.pid in pids]

    async def _moment(self) -> None:
        moment = asyncio.Event()
        asyncio.get_running_loop().call_later(self._random.random() * 0.03, moment.set)
        await moment.wait()


async def answer_all(app: holdfast.Holdfast, observer: Observer, count: int) -> None:
    """Answers each run's promise: some before it is awaited, some when it is about to be."""
    answered = set(range(0, count, 2))
    for n in answered:
        await app.resolve(f"job-{n}", "answer", 1000, early=True)

    def asking() -> set[int]:
        return {int(e.run[4:]) for e in observer.effects if e.name == "asking"} - answered

    while len(answered) < count:
        for n in await observer.until(asking, "a run that asks"):
            await app.resolve(f"job-{n}", "answer", 1000, early=True)
            answered.add(n)


async def assert_exact(app: holdfast.Holdfast, observer: Observer, run: str) -> None:
    """What the journal holds of a step is what its last execution did: none came after it."""
    executions: dict[str, list[Effect]] = defaultdict(list)
    for effect in observer.effects:
        if effect.run == run:
            executions[effect.key].append(effect)
    last = {found[-1].token: found[-1].name for found in executions.values()}
    recorded = [
        codec.decode(entry.output or b"null", what=entry.key)
        for entry in await app.history(run)
        if entry.kind is Kind.STEP
    ]
    assert sorted(last[token] for token in recorded) == sorted(JOB)
    assert len(executions) == len(JOB), "an idempotency key changed between two tries"


async def completed(app: holdfast.Holdfast, run: str) -> int:
    """The result. A run whose workers are killed again and again before it gets any further ends in
    quarantine; somebody who knows that it is not to blame resumes it."""
    while True:
        try:
            result: int = await app.result(run)
            return result
        except RunHalted as error:
            assert "quarantined" in str(error)
            await app.resume(run)


async def survive(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer, *, runs: int, seed: int
) -> None:
    killer = Killer(fleet, observer, seed)
    await killer.start(2)
    for n in range(runs):
        await app.with_options(id=f"job-{n}").start(job, n)
    answering = asyncio.create_task(answer_all(app, observer, runs))
    killing = asyncio.create_task(killer.kill())
    async with asyncio.timeout(runs * SECONDS_MAX / 4):
        results = await asyncio.gather(*(completed(app, f"job-{n}") for n in range(runs)))
    killing.cancel()
    await asyncio.wait([killing])
    await answering
    assert results == [n + 1000 for n in range(runs)]
    assert killer.kills >= 5
    for n in range(runs):
        await assert_exact(app, observer, f"job-{n}")


@pytest.mark.timeout(1200)
async def test_kills_at_random_moments_lose_nothing_and_repeat_nothing_committed(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    await survive(app, fleet, observer, runs=15, seed=1)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(10))
async def test_many_kills_at_random_moments(
    seed: int, app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    await survive(app, fleet, observer, runs=60, seed=seed)


@pytest.mark.parametrize("children", [False, True], ids=["alone", "with forked children"])
async def test_a_death_is_noticed_by_itself_and_not_by_the_lease(
    children: bool, app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    # Forked children keep everything they inherited. The lease outlasts the test by far.
    observer.holds = lambda effect: effect.name == "two"
    first = await fleet.add(children=children)
    run = await app.start(line, ["one", "two", "three"])
    await observer.sees("two", pid=first.pid)
    peer = await fleet.add()
    assert len(first.children) == (2 if children else 0)
    await first.kill()
    (await observer.sees("two", pid=peer.pid)).let_go()
    await run.result()
    assert observer.names() == ["one", "two", "two", "three"]


async def test_a_worker_that_starts_later_takes_up_what_a_dead_one_left(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    observer.holds = lambda effect: effect.name == "two"
    first = await fleet.add()
    run = await app.start(line, ["one", "two"])
    await observer.sees("two")
    await first.kill()
    second = await fleet.add()
    (await observer.sees("two", pid=second.pid)).let_go()
    assert len(await run.result()) == 2
    assert observer.names(pid=second.pid) == ["two"]
