"""Runs a workflow again and again, with a crash at every place of its journal.

    report = await crash_everywhere(research, "why?", answers={"release": Decision(True)})

Each time three lives follow one another: the first crashes at the chosen place, the second recovers
and gets as far as the end, which is held back, and the third replays the finished journal. Checked
is that no completed step of any run is executed again, that the replay starts nothing and adds
nothing but the end, and that it ends as the run did. Runs that it started and does not wait for (a
race's loser, one of `holdfast.start`) may go on meanwhile, and need not end. What is not checked:
whether a step that had begun and not completed may safely be executed twice; `report.repeated`
names those.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast import codec
from holdfast.clock import FakeClock, SystemClock
from holdfast.engine import rest
from holdfast.engine.workflow import Workflow
from holdfast.errors import AlreadyEnded
from holdfast.store.base import End
from holdfast.testing.crash_store import CrashStore, StepCall
from holdfast.testing.environment import Environment
from holdfast.types import Entry, Kind, RunKey, RunRow, Status
from holdfast.worker.options import WorkerOptions

RUN_ID = "crash-everywhere"
POSITIONS_MAX = 2000
OTHERS_SECONDS = 0.2
"""How long runs that were started and left behind may still go on when the run itself has ended."""


class NotDurable(AssertionError):
    """A run did not survive a crash as it should."""


@dataclass
class CrashReport:
    workflow: str
    result: Any = None  # of the run without a crash; an exception if it failed
    entries: int = 0  # of the journal of that run and its children
    crashes: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    """Tries per key, without a crash. Keys of other runs begin with how they were started."""
    repeated: Counter[str] = field(default_factory=Counter)
    """Per key, in how many crashes a step had begun, was not recorded, and was begun again."""

    def __repr__(self) -> str:
        text = (
            f"{self.workflow}: {self.crashes} crashes at {self.entries} journal entries, all "
            f"recovered; {len(self.steps)} steps, none executed again once it was recorded"
        )
        if self.repeated:
            again = ", ".join(f"{key} ({n}x)" for key, n in self.repeated.most_common(10))
            text += f"; begun again because a crash came before their record: {again}"
        return f"<{text}>"


async def crash_everywhere(
    workflow: Workflow[Any, Any],
    /,
    *args: Any,
    workflows: Iterable[Workflow[Any, Any]] = (),
    answers: Mapping[str, object] | None = None,
    messages: Sequence[object] = (),
    worker_options: WorkerOptions | None = None,
    clock: SystemClock | None = None,
) -> CrashReport:
    """Runs `workflow(*args)` with a crash at every journal position; NotDurable if one does harm.

    workflows: others it starts.
    answers: to its promises and approvals, by name, given as soon as the run has begun.
    messages: sent to the run in this order, likewise.
    worker_options: of the workers.
    clock: by default time is virtual and jumps to what is next; a SystemClock lets it pass.
    """
    trial = _Trial(
        workflow, args, [workflow, *workflows], answers or {}, messages, worker_options, clock
    )
    report = CrashReport(workflow.name)
    await trial.without_crash(report)
    for entries in range(POSITIONS_MAX):
        # A run need not have the same length every time: one that never got this far is the last.
        crashed = await trial.with_crash(report, entries + 1, at_once=True)
        crashed |= await trial.with_crash(report, entries, at_once=False)
        if not crashed:
            return report
    raise NotDurable(f"{workflow.name} has more than {POSITIONS_MAX} entries: try a smaller input")


@dataclass
class _Trial:
    workflow: Workflow[Any, Any]
    args: tuple[Any, ...]
    workflows: list[Workflow[Any, Any]]
    answers: Mapping[str, object]
    messages: Sequence[object]
    worker_options: WorkerOptions | None
    clock: SystemClock | None

    async def without_crash(self, report: CrashReport) -> None:
        life = _Life(self)
        row = await life.live()
        assert row is not None
        report.entries = life.store.entries
        report.steps.update(life.name(call) for call in life.started)
        report.result = _outcome(self.workflow, row)
        await life.store.discard()

    async def with_crash(self, report: CrashReport, entries: int, *, at_once: bool) -> bool:
        life = _Life(self)
        life.where = f"a crash {'after' if at_once else 'before'} entry {entries + (not at_once)}"
        try:
            life.store.arm(entries, at_once=at_once)
            if await life.live() is not None:
                return False
            report.crashes += 1
            await self._recover(life, report)
        finally:
            await life.store.discard()
        return True

    async def _recover(self, life: _Life, report: CrashReport) -> None:
        completed, begun = set(life.store.completed), set(life.started)
        life.store.arm(without_end=True)
        row = await life.live()
        life.refuse(completed, "executed again although recorded")
        report.repeated.update(life.name(call) for call in set(life.started) & begun)
        if row is None:
            await self._replay(life)
        elif not row.status.ended:
            raise NotDurable(f"{life.where}: the run is {row.status}: {row.reason}")

    async def _replay(self, life: _Life) -> None:
        before = await life.journal()
        completed, over = set(life.store.completed), set(life.store.over)
        life.store.arm()
        row = await life.live()
        assert row is not None
        life.refuse({call for call in life.started if call.run in over}, "the replay executed")
        life.refuse(completed, "during the replay, executed again although recorded")
        if not row.status.ended:
            raise NotDurable(f"{life.where}: the replay is {row.status}: {row.reason}")
        added = (await life.journal())[len(before) :]
        if [entry.kind for entry in added] != [Kind.CLAIM, Kind.END]:
            shown = ", ".join(f"{entry.kind} {entry.key}" for entry in added)
            raise NotDurable(f"{life.where}: the replay added {shown}")
        assert life.store.end is not None
        if _summary(life.store.end) != _summary(End(row.status, row.output)):
            raise NotDurable(
                f"{life.where}: the run ended with {_shown(life.store.end.output)}, "
                f"and its replay with {_shown(row.output)}"
            )


class _Life:
    """One store, and one worker after the other on it."""

    def __init__(self, trial: _Trial) -> None:
        self.store = CrashStore(RUN_ID)
        self.started: list[StepCall] = []
        self.where = "without a crash"
        self._trial = trial
        self._clock = trial.clock or FakeClock()
        self._provided = False
        self._nobody_provides = asyncio.Event()
        self._nobody_provides.set()
        self._runs: dict[RunKey, str] = {}  # what their steps' keys are shown with

    async def live(self) -> RunRow | None:
        """Until the run has ended or halted; None: there was a crash."""
        self.started = []
        env = Environment(
            self._trial.workflows,
            worker_options=self._trial.worker_options,
            clock=self._clock,
            store=self.store,
        )
        env.on_step = self._step_began
        await env.open()
        life = asyncio.create_task(self._drive(env))
        death = asyncio.create_task(self.store.crashed.wait())
        try:
            await asyncio.wait([life, death], return_when=asyncio.FIRST_COMPLETED)
            if self.store.diverged is not None:
                raise NotDurable(self.store.diverged)
            return None if death.done() else life.result()
        except AssertionError as error:
            raise NotDurable(f"{self.where}: {error}") from error
        finally:
            await self._nobody_provides.wait()  # who answers lives elsewhere, and does not crash
            life.cancel()
            death.cancel()
            await asyncio.wait([life, death])
            rest.consume(life)
            await env.die()

    async def _drive(self, env: Environment) -> RunRow:
        app = env.app.with_options(id=RUN_ID)
        await app.start(self._trial.workflow, *self._trial.args)
        if not self._provided:
            self._provided = True
            self._nobody_provides.clear()
            try:
                await self._provide(env)
            finally:
                self._nobody_provides.set()
        return await _ended(env)

    async def _provide(self, env: Environment) -> None:
        try:
            for name, answer in self._trial.answers.items():
                await env.app.resolve(RUN_ID, name, answer, early=True)
            for message in self._trial.messages:
                await env.app.send(RUN_ID, message)
        except AlreadyEnded:
            return  # it did not wait for them

    def _step_began(self, row: RunRow, key: str, digest: bytes | None) -> None:
        self.started.append(StepCall(row.key, row.generation, key, digest))
        own = row.id.startswith((RUN_ID + "/", RUN_ID + "~")) or row.id == RUN_ID
        self._runs[row.key] = row.id.removeprefix(RUN_ID) if own else row.workflow

    def refuse(self, calls: set[StepCall], what: str) -> None:
        """NotDurable if one of these was executed."""
        executed = calls & set(self.started)
        if executed:
            names = ", ".join(sorted(self.name(call) for call in executed))
            raise NotDurable(f"{self.where}: {what}: {names}")

    def name(self, call: StepCall) -> str:
        return self._runs[call.run] + call.key

    async def journal(self) -> list[Entry]:
        row = await self.store.get(RUN_ID)
        entries: list[Entry] = await self.store.journal(row.key)
        return entries


async def _ended(env: Environment) -> RunRow:
    """How the run ended or halted. Others that it left behind go on until they only wait, too, but
    not for ever: nobody waits for them."""
    settled = asyncio.create_task(env.ended(RUN_ID))
    ended = asyncio.create_task(env.app.result(RUN_ID))
    try:
        await asyncio.wait([settled, ended], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([settled], timeout=OTHERS_SECONDS)
        return settled.result() if settled.done() else await env.app.row(RUN_ID)
    finally:
        for task in (settled, ended):
            task.cancel()
        await asyncio.wait([settled, ended])
        rest.consume(ended)


def _summary(end: End) -> object:
    """Errors are compared by what they say: their tracebacks also show how they were replayed."""
    if end.status is Status.FAILED and end.output is not None:
        return codec.error_summary(end.output)[:2]
    return end


def _outcome(workflow: Workflow[Any, Any], row: RunRow) -> Any:
    if row.output is not None and row.status is Status.FAILED:
        return codec.decode_error(row.output)
    return workflow.decode_result(row.output, row.id)


def _shown(output: bytes | None) -> str:
    text = (output or b"null").decode("utf-8", "replace")
    return text if len(text) <= 300 else f"{text[:300]}…"
