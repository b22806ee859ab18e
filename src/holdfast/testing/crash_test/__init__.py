"""Kills somebody's agent at every step, without Holdfast and with it, and counts what it costs.

The agent's file is not changed. Each life is a process of its own, which sees calls of models and
of the file's functions (taps.py) and is killed by SIGKILL: without Holdfast after each of these
calls, whereupon the agent is started again, which is all that is left to do; with it after each
commit, whereupon the run goes on. Answers of models are recorded in the first life and given again.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, Unsupported
from holdfast.testing.crash_test.taps import SIGKILL

LOG_LINES_SHOWN = 30
_CHILD = [sys.executable, "-m", f"{__name__}.child"]


class AgentFailed(HoldfastError):
    """The agent under test failed when nobody had killed it, or was not finished in time."""


@dataclass
class Life:
    """What one process said."""

    events: list[dict[str, Any]] = field(default_factory=list)
    was_killed: bool = False
    log: str = ""

    def of(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.events if one["event"] == event]

    @property
    def finished(self) -> bool:
        return bool(self.of("finished"))


@dataclass
class Tally:
    """What all kills of one side have cost."""

    kills: int = 0
    finished: int = 0
    models_repeated: int = 0
    effects_repeated: int = 0
    seconds_lost: float = 0.0
    tokens_lost: int = 0
    in_flight: int = 0  # begun when the process was killed, and so begun again

    def add(self, kind: str, done: dict[str, Any]) -> None:
        if kind == "model":
            self.models_repeated += 1
        else:
            self.effects_repeated += 1
        self.seconds_lost += done["seconds"]
        self.tokens_lost += done.get("tokens", 0)


@dataclass
class Report:
    agent: str
    adapter: str | None
    models: int
    effects: list[str]
    outside_steps: list[str]  # functions that run again whenever the run is replayed
    models_outside_steps: int  # calls that are made again then
    without: Tally = field(default_factory=Tally)
    durable: Tally = field(default_factory=Tally)

    @property
    def holds(self) -> bool:
        """Did every run finish, and nothing on record happen again? And was all on record?"""
        with_it = self.durable
        repeated = with_it.models_repeated + with_it.effects_repeated
        unrecorded = self.models_outside_steps
        return with_it.finished == with_it.kills and not repeated and not unrecorded

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "holds": self.holds}


class CrashTest:
    def __init__(
        self, file: Path, name: str | None, input: Any, *, seconds_max: float, every: int
    ) -> None:
        self._task = {"file": str(file.resolve()), "name": name, "input": input}
        self._seconds_max = seconds_max
        self._every = every
        self._folder = Path()

    def run(self, tell: Callable[[int, int], None]) -> Report:
        """`tell` hears how many kills are behind us, and how many there are."""
        if sys.platform == "win32":
            raise Unsupported("crash-test kills processes by SIGKILL, which Windows does not have")
        with tempfile.TemporaryDirectory(prefix="holdfast-crash-test-") as folder:
            self._folder = Path(folder)
            durable = self._undisturbed(store="whole.db", effects=None)
            effects = _leaves(durable, "effect")
            plain = self._undisturbed(store=None, effects=effects)
            report = Report(
                **_agent(durable),
                models=_count(durable, "model"),
                effects=effects,
                outside_steps=_leaves(durable, "plain"),
                models_outside_steps=len(_outside_steps(durable)),
            )
            if not report.models and not effects:
                raise Unsupported(
                    "the agent did nothing that can be seen: crash-test sees functions of its file "
                    "that run in steps, and calls of OpenAI, Anthropic and Gemini that are made "
                    "through httpx"
                )
            calls = range(1, len(plain.of("done")) + 1, self._every)
            commits = range(1, len(durable.of("commit")) + 1, self._every)
            kills = len(calls) + len(commits)
            for number, k in enumerate(calls):
                tell(number, kills)
                self._kill_plain(k, effects, report.without)
            for number, k in enumerate(commits, len(calls)):
                tell(number, kills)
                self._kill_durable(k, effects, report.durable)
            tell(kills, kills)
            return report

    def _kill_plain(self, k: int, effects: list[str], tally: Tally) -> None:
        killed = self._live(store=None, effects=effects, die_after=k)
        if not killed.was_killed:
            return  # it went another way this time, and was over before
        again = self._live(store=None, effects=effects)
        tally.kills += 1
        tally.finished += again.finished
        for done in killed.of("done"):
            tally.add(done["kind"], done)
        tally.in_flight += len(killed.of("call")) - len(killed.of("done"))

    def _kill_durable(self, k: int, effects: list[str], tally: Tally) -> None:
        store = f"{k}.db"
        killed = self._live(store=store, effects=effects, die_after=k)
        if not killed.was_killed:
            return
        asked = Counter(one["question"] for one in killed.of("asked"))
        again = self._live(store=store, effects=effects, asked=asked)
        tally.kills += 1
        tally.finished += again.finished
        on_record = {key for commit in killed.of("commit") for key in commit["steps"]}
        begun = {call["step"] for call in killed.of("call")}
        outside = _outside_steps(killed)
        dones = iter(again.of("done"))
        for call in again.of("call"):
            if call["step"] is None:
                is_repeated = call["kind"] == "model" and bool(outside and outside.pop())
            else:
                is_repeated = _is_on_record(call["step"], on_record)
            if is_repeated:
                tally.add(call["kind"], next(dones, {"seconds": 0.0}))
            elif call["step"] is not None and call["step"] in begun:
                tally.in_flight += 1

    def _undisturbed(self, *, store: str | None, effects: list[str] | None) -> Life:
        life = self._live(store=store, effects=effects)
        if life.finished:
            return life
        side = "without Holdfast" if store is None else "with Holdfast"
        for error in life.of("error"):
            if error["is_ours"]:
                raise AgentFailed(f"{error['text']} ({side}, before it was killed)")
        tail = "\n".join(life.log.splitlines()[-LOG_LINES_SHOWN:])
        raise AgentFailed(f"the agent failed {side}, before it was killed:\n{tail}")

    def _live(
        self,
        *,
        store: str | None,
        effects: list[str] | None,
        asked: dict[str, int] | None = None,
        die_after: int | None = None,
    ) -> Life:
        reading, writing = os.pipe()
        task = {
            **self._task,
            "pipe": writing,
            "recording": str(self._folder / "recording.jsonl"),
            "store": None if store is None else str(self._folder / store),
            "asked": asked or {},
            "effects": effects,
            "die_after": die_after,
        }
        with (self._folder / "log").open("w+") as log:
            process = subprocess.Popen(
                _CHILD, stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=[writing]
            )
            os.close(writing)
            assert process.stdin is not None
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.close()
            told = _read(reading, time.monotonic() + self._seconds_max)
            os.close(reading)
            if told is None:
                process.kill()
            process.wait()
            if told is None:
                raise AgentFailed(
                    f"the agent was not finished in {self._seconds_max:.0f} s; give --timeout"
                )
            log.seek(0)
            events = [json.loads(line) for line in told.splitlines()]
            return Life(events, process.returncode == -SIGKILL, log.read())


def _read(pipe: int, until: float) -> bytes | None:
    """All that is written until the pipe's last writer is gone; None: it takes too long."""
    told = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while selector.select(max(0.0, until - time.monotonic())):
            piece = os.read(pipe, 65536)
            if not piece:
                return told
            told += piece
    return None


def _agent(life: Life) -> dict[str, Any]:
    said = life.of("agent")[0]
    return {"agent": said["name"], "adapter": said["adapter"]}


def _leaves(life: Life, kind: str) -> list[str]:
    """Functions that did something by themselves: those around others only call them."""
    dones = [done for done in life.of("done") if done["kind"] == kind]
    around = {done["name"] for done in dones if not done["is_leaf"]}
    return sorted({done["name"] for done in dones} - around)


def _count(life: Life, kind: str) -> int:
    return sum(call["kind"] == kind for call in life.of("call"))


def _outside_steps(life: Life) -> list[dict[str, Any]]:
    """Calls of models whose answers are on no record: they are asked for on every replay."""
    return [call for call in life.of("call") if call["kind"] == "model" and call["step"] is None]


def _is_on_record(step: str, on_record: set[str]) -> bool:
    """Whether the step, or one that it is a part of, had been journaled."""
    return any(step == key or step.startswith(f"{key}/") for key in on_record)
