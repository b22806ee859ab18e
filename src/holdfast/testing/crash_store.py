"""A store that dies with its worker at a chosen place.

Everything else of it is real. A crash comes either right after a commit, before anybody heard that
it succeeded, or right before one, which then never happens. A batch that a place lies inside of is
cut there: another time the group commit might have ended at that entry.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.engine.context import enclosing_step
from holdfast.store.base import (
    Append,
    Appended,
    Claimed,
    ContinueAs,
    End,
    Operation,
    Outcome,
    Start,
    Started,
    Suspend,
)
from holdfast.testing.kept_store import KeptStore
from holdfast.types import Entry, Kind, RunId, RunKey, Status


@dataclass(frozen=True, slots=True)
class StepCall:
    """A step of a certain run, called with certain arguments."""

    run: RunKey
    generation: int
    key: str
    digest: bytes | None


class CrashStore(KeptStore):
    def __init__(self, run: RunId) -> None:
        super().__init__()
        self.crashed = asyncio.Event()
        self.entries = 0  # committed so far, of all runs
        self.completed: set[StepCall] = set()
        self.over: set[RunKey] = set()  # runs that have ended, or would have but for the crash
        self.diverged: str | None = None  # why a run was parked that did not follow its journal
        self.end: End | None = None  # how the run ended, when its end was held back
        self._run = run
        self._key: RunKey | None = None
        self._generations: dict[RunKey, int] = defaultdict(lambda: 1)
        self._entries_max: int | None = None
        self._at_once = False
        self._without_end = False

    def arm(
        self, entries_max: int | None = None, *, at_once: bool = False, without_end: bool = False
    ) -> None:
        """Sets the next crash: when more entries than `entries_max` are to be written, or `at_once`
        when there are so many; or when everything but the run's end has been written."""
        self.crashed.clear()
        self._entries_max, self._at_once, self._without_end = entries_max, at_once, without_end

    async def commit(self, operations: Sequence[Operation], *, request: str = "") -> list[Outcome]:
        if self.crashed.is_set():
            await _never()
        sent, dies = self._cut(operations)
        outcomes = await self._kept.commit(sent) if sent else []
        for operation, outcome in zip(sent, outcomes, strict=True):
            self._remember(operation, outcome)
        if dies:
            self.crashed.set()
            await _never()
        return outcomes

    async def claim(self, *args: Any, **kwargs: Any) -> list[Claimed]:
        if self.crashed.is_set():
            await _never()  # the dead take no runs
        return await self._kept.claim(*args, **kwargs)

    def _cut(self, operations: Sequence[Operation]) -> tuple[list[Operation], bool]:
        """What is still written, and whether that was the last."""
        sent: list[Operation] = []
        room = 1 << 62 if self._entries_max is None else self._entries_max - self.entries
        for operation in operations:
            if self._without_end and self._is_end(operation):
                assert isinstance(operation, Append) and isinstance(operation.then, End)
                self.end = operation.then
                self.over.add(operation.run)
                sent.append(_first(operation, len(operation.entries) - 1))
                return sent, True
            count = _entries_in(operation)
            if count > room:
                if room and isinstance(operation, Append):
                    sent.append(_first(operation, room))
                return sent, True
            sent.append(operation)
            room -= count
            if not room and self._at_once:
                return sent, True
        return sent, False

    def _is_end(self, operation: Operation) -> bool:
        return (
            isinstance(operation, Append)
            and operation.run == self._key
            and isinstance(operation.then, End)
        )

    def _remember(self, operation: Operation, outcome: Outcome) -> None:
        if isinstance(operation, Start):
            if isinstance(outcome, Started):
                self.entries += outcome.claimed
                if operation.run.id == self._run:
                    self._key = outcome.row.key
            return
        if not isinstance(outcome, Appended):
            return
        self.entries += len(operation.entries)
        generation = self._generations[operation.run]
        for entry in operation.entries:
            if _is_final(entry):
                call = StepCall(operation.run, generation, entry.key, entry.digest)
                self.completed.add(call)
        if isinstance(operation.then, End):
            self.over.add(operation.run)
        elif isinstance(operation.then, ContinueAs):
            self._generations[operation.run] += 1
        elif isinstance(operation.then, Suspend) and operation.then.status is Status.PARKED:
            if "diverged from its journal" in operation.then.reason:
                self.diverged = operation.then.reason


async def _never() -> None:
    await asyncio.get_running_loop().create_future()


def _entries_in(operation: Operation) -> int:
    if isinstance(operation, Start):
        return 1 if operation.claim_for else 0
    return len(operation.entries)


def _first(append: Append, count: int) -> Append:
    """The append as it would be if the batch had ended after so many of its entries."""
    entries = append.entries[:count]
    writes = sum(entry.kind is Kind.STATE for entry in entries)
    return append._replace(entries=entries, session=append.session[:writes], then=None)


def _is_final(entry: Entry) -> bool:
    """A step that failed inside another one is tried again with it; every other outcome stands."""
    return entry.kind is Kind.STEP and (not entry.failed or not enclosing_step(entry.key))
