"""Runs that are started all the time, and what is known of them outside of the store.

What is held against them at the end rests on two things that the observer saw of each effect: when
its step began, and under which epoch.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import holdfast
from holdfast import codec
from holdfast.errors import RunHalted, StoreUnavailable
from holdfast.types import Entry, Kind, RunFilter, Status
from tests.crash.agent import JOB, job, late, line
from tests.crash.fleet import Effect, Observer

T = TypeVar("T")

LEASE = 3.0
ANSWER = 1000
LINE = [f"step {number}" for number in range(8)]
LATE = ["late"]
SESSIONS = 3
GATES = 5  # so many `late` are held before they may ask for their step
GATE_EFFECTS = 40  # until so many other effects were seen
STAGES = {"first": 0, "thread": 2, "asking": 3, "last": 4}  # of a job; all others: 1


@dataclass
class Started:
    id: str
    names: list[str]
    session: str | None
    number: int


class Load:
    """Keeps so many runs under way; `wider` while some of them may be stuck."""

    def __init__(self, app: holdfast.Holdfast, observer: Observer, seed: int) -> None:
        self._app, self._observer = app, observer
        self._random = random.Random(f"load {seed}")
        self._asked: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._room = asyncio.Condition()
        self._width = 16
        self._open: set[asyncio.Task[None]] = set()
        self.started: list[Started] = []
        self.results: dict[str, Any] = {}
        self._gates: list[tuple[int, Effect]] = []
        self._gates_max = GATES
        observer.holds = self._sees

    def _sees(self, effect: Effect) -> bool:
        if effect.name == "asking":
            self._asked[effect.run].set()
        count = len(self._observer.effects)
        if effect.name == "gate":
            self._gates.append((count + GATE_EFFECTS, effect))
        while self._gates and (self._gates[0][0] <= count or len(self._gates) > self._gates_max):
            self._gates.pop(0)[1].let_go()
        return effect.name == "gate" and self._gates_max > 0

    async def wider(self, by: int) -> None:
        async with self._room:
            self._width += by
            self._room.notify_all()

    async def keep_up(self) -> None:
        """Until it is cancelled; whatever has been asked for by then goes on."""
        while True:
            async with self._room:
                await self._room.wait_for(lambda: len(self._open) < self._width)
            made = self._next()
            self.started.append(made)
            task = asyncio.create_task(self._one(made))
            self._open.add(task)

    async def finish(self, seconds: float) -> None:
        self._gates_max = 0
        for _, effect in self._gates:
            effect.let_go()
        _, late = await asyncio.wait(self._open, timeout=seconds) if self._open else ((), ())
        for made in self.started if late else ():
            if made.id not in self.results:
                print(await self._app.why(made.id))
        assert not late, f"{len(late)} runs have not ended"
        await asyncio.gather(*self._open)

    def _next(self) -> Started:
        number = len(self.started)
        names = (JOB, LINE, LATE, LINE)[number % 4]
        session = f"s{self._random.randrange(SESSIONS)}" if number % 4 == 1 else None
        return Started(f"run-{number}", names, session, number)

    async def _one(self, made: Started) -> None:
        copies = 2 if self._random.random() < 0.25 else 1
        await asyncio.gather(*(until_heard(lambda: self._start(made)) for _ in range(copies)))
        if made.names is JOB:
            if self._random.random() < 0.5:
                await self._asked[made.id].wait()
            await until_heard(lambda: self._app.resolve(made.id, "answer", ANSWER, early=True))
        self.results[made.id] = await until_heard(lambda: completed(self._app, made.id))
        if self._random.random() < 0.1:  # a request that comes late is still the same run
            await until_heard(lambda: self._start(made))
        task = asyncio.current_task()
        assert task is not None
        async with self._room:
            self._open.discard(task)
            self._room.notify_all()

    async def _start(self, made: Started) -> None:
        if made.names is JOB:
            await self._app.with_options(id=made.id).start(job, made.number)
        elif made.names is LATE:
            await self._app.with_options(id=made.id).start(late, *LATE)
        else:
            options = self._app.with_options(id=made.id, session=made.session, on_busy="enqueue")
            await options.start(line, made.names)


async def until_heard(ask: Callable[[], Awaitable[T]]) -> T:
    """A client that asks again when the store could not be reached."""
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            continue


async def completed(app: holdfast.Holdfast, run: str) -> Any:
    """The result. A run whose workers are killed again and again before it gets any further ends in
    quarantine; somebody who knows that it is not to blame resumes it."""
    while True:
        try:
            return await app.result(run)
        except RunHalted as error:
            assert "quarantined" in str(error)
            await app.resume(run)


# What is held against them


@dataclass(frozen=True)
class Stop:
    """A process stopped and continued, on the machine's steady clock."""

    pid: int
    continued: float


@dataclass(frozen=True)
class Cut:
    """A process whose connections were cut, just after this moment on the same clock."""

    pid: int
    at: float


class Audit:
    """`complaints`: all that was promised and is not so."""

    def __init__(
        self, load: Load, observer: Observer, stops: Sequence[Stop] = (), cuts: Sequence[Cut] = ()
    ) -> None:
        self._load, self._stops, self._cuts = load, stops, cuts
        self._effects: dict[str, list[Effect]] = defaultdict(list)
        self._begun: dict[int, list[float]] = defaultdict(list)
        for effect in observer.effects:
            self._effects[effect.run].append(effect)
            if effect.key:
                self._begun[effect.pid].append(effect.began)
        self._spans: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
        self.complaints: list[str] = []
        self.repeated = 0  # begun, not recorded, and therefore begun again
        self.excused = 0

    async def hold(self, app: holdfast.Holdfast) -> list[str]:
        ids = {made.id for made in self._load.started}
        ended = frozenset({Status.COMPLETED})
        found = [row.id for row in await app.list(RunFilter(status=ended, limit=100_000))]
        everything = await app.list(RunFilter(limit=100_000))
        self._that(sorted(found) == sorted(ids), f"completed: {found}, accepted: {ids}")
        self._that(len(everything) == len(ids), f"{len(everything)} runs, {len(ids)} accepted")
        for made in self._load.started:
            self._look_at(made, await app.history(made.id))
        for session, spans in self._spans.items():
            spans.sort()
            for (_, end, one), (begin, _, other) in itertools.pairwise(spans):
                self._that(end < begin, f"{one} and {other} of {session} ran side by side")
        self.complaints += [str(found) for found in await app.store.check()]
        return self.complaints

    def _that(self, holds: bool, complaint: str) -> None:
        if not holds:
            self.complaints.append(complaint)

    def _look_at(self, made: Started, history: list[Entry]) -> None:
        effects = [effect for effect in self._effects[made.id] if effect.key]
        by_token = {effect.token: effect for effect in effects}
        steps = [entry for entry in history if entry.kind is Kind.STEP]
        tokens = [codec.decode(entry.output or b"null", what=entry.key) for entry in steps]
        self._that(set(tokens) <= set(by_token), f"{made.id}: recorded what nobody did")
        recorded = [by_token[token] for token in tokens if token in by_token]
        epochs = {effect.name: effect.epoch for effect in recorded}
        self._that(sorted(epochs) == sorted(made.names), f"{made.id}: its journal has {epochs}")
        self._that(
            [entry.epoch for entry in steps] == [effect.epoch for effect in recorded],
            f"{made.id}: a step was recorded under another epoch than it was executed",
        )
        keys = {effect.key for effect in effects}
        self._that(len(keys) == len(made.names), f"{made.id}: the idempotency keys are {keys}")
        wanted = made.number + ANSWER if made.names is JOB else tokens
        wanted = tokens[0] if made.names is LATE and tokens else wanted
        result = self._load.results.get(made.id)
        self._that(result == wanted, f"{made.id}: its result is {result}, not {wanted}")
        begun = [effect.began for effect in recorded]
        if made.session is not None and begun:
            self._spans[made.session].append((min(begun), max(begun), made.id))
        for effect in effects:
            self._look_at_effect(made, effect, epochs, set(tokens))

    def _look_at_effect(
        self, made: Started, effect: Effect, epochs: dict[str, int], recorded: set[str]
    ) -> None:
        # An effect begins only when all that goes before it is acknowledged: what was recorded of
        # that is of this epoch or an earlier one. Otherwise it was lost, and done again.
        for name, epoch in epochs.items():
            if stage(made, name) < stage(made, effect.name):
                self._that(epoch <= effect.epoch, f"{effect} went before, and {name} was lost")
        if effect.token in recorded:
            return
        self.repeated += 1
        epoch = epochs.get(effect.name, 0)
        self._that(effect.epoch < epoch, f"{effect} (epoch {effect.epoch}): recorded in {epoch}")
        later = [
            other.began or other.seen
            for other in self._effects[made.id]
            if other.epoch > effect.epoch
        ]
        if later and effect.began >= min(later):
            known = self._was_stopped_on_its_way(effect) or self._had_not_heard(effect)
            self.excused += known
            self._that(known, f"{effect} began after another worker had taken over")

    def _was_stopped_on_its_way(self, effect: Effect) -> bool:
        """Between the look at its lease and the beginning of its step, a process can be stopped for
        any time. That is the first thing it does when it goes on, and the only one."""
        return any(
            stop.pid == effect.pid
            and stop.continued <= effect.began
            and not [b for b in self._begun[stop.pid] if stop.continued <= b < effect.began]
            for stop in self._stops
        )

    def _had_not_heard(self, effect: Effect) -> bool:
        """The server frees the locks of who is cut off at once, and others take over. A process
        that has no turn just then hears of it later; until its lease ends it may begin a step."""
        return any(
            cut.pid == effect.pid and cut.at <= effect.began <= cut.at + LEASE for cut in self._cuts
        )


def stage(made: Started, name: str) -> int:
    return STAGES.get(name, 1) if made.names is JOB else made.names.index(name)
