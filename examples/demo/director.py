"""Plays the story: starts the run, kills its workers at the chosen moments, answers the approval.

The director is the outside observer: the model and the office live in its process, and it only
reads the journal. It never helps: the one thing it does besides killing is what a supervisor does,
starting a new process for each dead one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import holdfast
from examples.demo.agent import report
from examples.demo.crew import Crew, Member
from examples.demo.ledger import Ledger, tally
from examples.demo.office import Office
from examples.demo.story import (
    EVERYBODY,
    FLAKY,
    MOMENTS,
    RATE_LIMITED,
    RETRY_AFTER_SECONDS,
    SCRIPT,
    TOPIC,
    Call,
    Moment,
)
from holdfast.testing.model_server import Asked, ModelServer, Reply
from holdfast.types import Entry, Kind, RunRow, Status

CREW = 2
TICK_SECONDS = 0.03
SECONDS_MAX = 180.0
RUN_ID = "report-7"


@dataclass
class Kill:
    """A SIGKILL, and how it went on."""

    victim: Member
    text: str
    at: float  # seconds since 1970
    label: str = ""  # the call in flight
    from_start: bool = False  # nobody was left: counted from the start of the next worker
    by: str | None = None  # who took over
    claim_ms: float | None = None  # until that one's claim was in the journal
    again_ms: float | None = None  # until the call in flight reached its service again


@dataclass(frozen=True)
class Event:
    at: float  # seconds since the start
    mark: str
    text: str
    style: str = ""


class Director:
    def __init__(
        self, folder: Path, *, pace: float, sabotage: bool, say: Callable[[Event], None]
    ) -> None:
        self.pace = pace
        self.began_at = time.time()
        self.events: list[Event] = []
        self.kills: list[Kill] = []
        self.entries: list[Entry] = []
        self.row: RunRow | None = None
        self.approval: Literal["", "waiting", "answered"] = ""
        self.names: dict[str, str] = {}  # of workers, by their id in the journal
        self._say = say
        self._moments = list(MOMENTS)
        self._strikes: list[Future[None]] = []
        self._loop = asyncio.get_running_loop()
        self._looked = asyncio.Event()
        delay = 0.7 * pace
        script = {part: Reply(text=text, delay=delay) for part, text in SCRIPT.items()}
        self.model = ModelServer(script, on_request=lambda asked: self._arrived(_call(asked)))
        self.model.fail(429, retry_after=RETRY_AFTER_SECONDS, match=RATE_LIMITED)
        self.office = Office(self._arrived, delay=0.4 * pace, flaky=FLAKY)
        store = f"sqlite:///{folder / 'demo.db'}"
        self.app = holdfast.Holdfast(store, workflows=[report], worker=False)
        environment = {
            "DEMO_STORE": store,
            "DEMO_MODEL": self.model.url,
            "DEMO_OFFICE": self.office.address,
            "DEMO_SABOTAGE": "1" if sabotage else "0",
        }
        self.crew = Crew(folder, environment)

    # What is known

    @property
    def calls(self) -> list[Call]:
        return [*map(_call, list(self.model.requests)), *list(self.office.calls)]

    @property
    def done(self) -> dict[str, Entry]:
        """What the journal says is done, by key."""
        kinds = (Kind.STEP, Kind.PROMISE)
        return {entry.key: entry for entry in self.entries if entry.kind in kinds}

    @property
    def elapsed(self) -> float:
        return time.time() - self.began_at

    def worker_of(self, entry: Entry) -> str:
        claims = (e for e in self.entries if e.kind is Kind.CLAIM and e.epoch == entry.epoch)
        return self.names.get(next(claims).key, "?")

    # The play

    async def play(self) -> Ledger:
        with self.model, self.office:
            try:
                async with self.app, asyncio.timeout(SECONDS_MAX):
                    await self._watch_while(self._acts())
                    await self._look()
            finally:
                for struck in self._strikes:
                    struck.cancel()
                self.crew.close()
        self.tell("■", f"the run ended: {self.row.status if self.row else '?'}", "bold green")
        journaled_at = {key: entry.at / 1e6 for key, entry in self.done.items()}
        killed = {kill.victim.pid: kill.at for kill in self.kills}
        needed = len(MOMENTS) + CREW
        return tally(self.calls, self.office.effects, journaled_at, killed, needed)

    async def _acts(self) -> None:
        for _ in range(CREW):
            self.crew.hire()
        await self._until(self._crew_is_ready)
        self.tell("▶", f"w1 and w2 share one file; run {RUN_ID} starts", "bold")
        await self.app.with_options(id=RUN_ID).start(report, TOPIC)
        # While it is still in somebody's memory, the last of the crew would take it over.
        await self._until(lambda: self.approval == "waiting" and self._has_left_memory())
        await self._kill_everybody()
        await self._until(self._has_ended)

    async def _kill_everybody(self) -> None:
        if self._has_ended():
            return
        self.tell("?", "the run waits for a human", "yellow")
        await self._until(self._crew_is_ready)
        await asyncio.sleep(1.2 * self.pace)
        kills = [self._kill(member, EVERYBODY) for member in self.crew.alive]
        await asyncio.sleep(self.pace)
        await self.app.resolve(RUN_ID, "release", holdfast.Decision(True, by="Ada"))
        self.tell("✓", "Ada approves, with no worker alive", "yellow")
        await asyncio.sleep(self.pace)
        for kill in kills:
            kill.at, kill.from_start = time.time(), True
        for _ in range(CREW):
            self._hire()

    def _arrived(self, call: Call) -> None:
        """On a service's thread, before it answers."""
        for moment in self._moments:
            if call.label.startswith(moment.label):
                self._moments.remove(moment)
                strike = self._strike(moment, call)
                struck = asyncio.run_coroutine_threadsafe(strike, self._loop)
                self._strikes.append(struck)
                with contextlib.suppress(CancelledError):
                    struck.result()
                return

    async def _strike(self, moment: Moment, call: Call) -> None:
        await self._until(lambda: moment.after is None or moment.after in self.done)
        await self._until(self._crew_is_ready)
        await asyncio.sleep(0.6 * self.pace)
        kill = self._kill(self.crew.of(call.pid), moment.text)
        kill.label = call.label
        self._hire()

    def _kill(self, member: Member, text: str) -> Kill:
        kill = Kill(member, text, time.time())
        self.crew.kill(member)
        self.kills.append(kill)
        self.tell("✖", f"SIGKILL {member.name}: {text}", "bold red")
        return kill

    def _hire(self) -> None:
        member = self.crew.hire()
        self.tell("+", f"{member.name} starts (pid {member.pid})", "dim")

    # Watching

    def tell(self, mark: str, text: str, style: str = "") -> None:
        event = Event(self.elapsed, mark, text, style)
        self.events.append(event)
        self._say(event)

    def _crew_is_ready(self) -> bool:
        return len(self.crew.alive) == CREW and all(m.ready for m in self.crew.alive)

    def _has_left_memory(self) -> bool:
        return self.row is not None and self.row.status is Status.WAITING

    def _has_ended(self) -> bool:
        return self.row is not None and self.row.status.ended

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true() and not self._has_ended():
            await self._looked.wait()

    async def _watch_while(self, acts: Coroutine[None, None, None]) -> None:
        both = [self._loop.create_task(acts), self._loop.create_task(self._watch())]
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()
        finally:
            for task in both:
                task.cancel()
            await asyncio.wait(both)

    async def _watch(self) -> None:
        while True:
            await self._look()
            self._looked.set()
            self._looked = asyncio.Event()
            await asyncio.sleep(TICK_SECONDS)

    async def _look(self) -> None:
        for row in await self.app.workers():
            for member in self.crew.members:
                if member.pid == row.pid:
                    member.ready = True
                    self.names[row.id] = member.name
        self.row = await self.app.store.get(RUN_ID)
        if self.row is None:
            return
        self.entries = await self.app.history(RUN_ID)
        for promise in await self.app.promises(RUN_ID):
            self.approval = "answered" if promise.resolved else "waiting"
        for kill in self.kills:
            self._follow(kill)

    def _tell_takeover(self, kill: Kill) -> None:
        if not kill.from_start:
            text = f"{kill.by} took over {kill.claim_ms:.0f} ms after the kill"
        elif kill is next(other for other in self.kills if other.from_start):
            text = f"{kill.by} goes on {kill.claim_ms:.0f} ms after its start"
        else:
            return  # one take-over after two deaths is told once
        self.tell("➜", text, "bold cyan")

    def _follow(self, kill: Kill) -> None:
        """Finds out who took over, and when."""
        if kill.claim_ms is None:
            for entry in self.entries:
                by = self.names.get(entry.key)
                if entry.kind is Kind.CLAIM and entry.at / 1e6 > kill.at and by:
                    kill.by, kill.claim_ms = by, entry.at / 1e3 - kill.at * 1e3
                    self._tell_takeover(kill)
                    break
        if kill.again_ms is None and kill.label:
            for call in self.calls:
                if call.label == kill.label and call.at > kill.at:
                    kill.again_ms = (call.at - kill.at) * 1e3
                    break


def _call(asked: Asked) -> Call:
    pid = int(asked.headers["x-worker"])
    key = asked.idempotency_key or ""
    return Call("llm", asked.prompt, key, pid, asked.at, asked.status, asked.answered_at)
