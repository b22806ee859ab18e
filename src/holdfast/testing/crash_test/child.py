"""One life of an agent under test: `python -m holdfast.testing.crash_test.child`.

It is told what to do by one line of JSON on its standard input.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holdfast
from holdfast.store.base import Append, Operation, Outcome
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.crash_test import agent
from holdfast.testing.crash_test.taps import SIGKILL, Functions, Models, Reporter
from holdfast.types import HALTED, Kind, RunRow, Status

RUN_ID = "crash-test"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a life is to be. `store` is None without Holdfast."""

    file: str
    name: str | None
    input: Any
    pipe: int
    recording: str
    store: str | None
    asked: dict[str, int]
    effects: list[str] | None
    die_after: int | None


class MortalStore(SQLiteStore):
    """Ends its process by SIGKILL right after the k-th commit of entries."""

    def __init__(self, path: str, reporter: Reporter, die_after: int | None) -> None:
        super().__init__(path)
        self._reporter, self._die_after = reporter, die_after
        self._commits = 0

    async def commit(self, operations: Sequence[Operation], *, request: str = "") -> list[Outcome]:
        outcomes = await super().commit(operations, request=request)
        entries = [e for one in operations if isinstance(one, Append) for e in one.entries]
        if entries:
            steps = [entry.key for entry in entries if entry.kind is Kind.STEP]
            self._reporter.tell(event="commit", steps=steps)
            self._commits += 1
            if self._commits == self._die_after:
                os.kill(os.getpid(), SIGKILL)
        return outcomes


def main() -> None:
    task = Task(**json.loads(sys.stdin.readline()))
    calls_max = task.die_after if task.store is None else None
    reporter = Reporter(task.pipe, calls_max)
    try:
        asyncio.run(_live(task, reporter))
    except holdfast.HoldfastError as error:
        reporter.tell(event="error", text=str(error), is_ours=True)
    except Exception as error:
        reporter.tell(event="error", text=f"{type(error).__name__}: {error}", is_ours=False)
        raise


async def _live(task: Task, reporter: Reporter) -> None:
    functions = Functions(reporter, task.effects)
    module = agent.load(Path(task.file), functions)
    found = agent.find(module, task.name)
    Models(reporter, Path(task.recording), task.asked).install()
    if task.store is None:
        reporter.tell(event="agent", name=found.name, adapter=found.adapter)
        result = found.plainly(task.input)
        await result if inspect.isawaitable(result) else result
    else:
        workflow = found.durably()
        reporter.tell(event="agent", name=found.name, adapter=found.adapter)
        await _run(task, reporter, workflow, found.arguments(task.input))
    reporter.tell(event="finished")


async def _run(task: Task, reporter: Reporter, workflow: Any, arguments: list[Any]) -> None:
    assert task.store is not None
    store = MortalStore(task.store, reporter, task.die_after)
    async with holdfast.Holdfast(store, workflows=[workflow]) as app:
        run = await app.with_options(id=RUN_ID).start(workflow, *arguments)
        done = asyncio.ensure_future(run.result())
        while not done.done():
            await asyncio.wait({done}, timeout=1.0)
            row = None if done.done() else await store.get(RUN_ID)
            if row is not None and _waits_for_others(row):
                done.cancel()
                raise holdfast.Unsupported(
                    f"the agent does not go on by itself, so it cannot be tested: {await run.why()}"
                )
        await done


def _waits_for_others(row: RunRow) -> bool:
    return row.status in HALTED or (row.status is Status.WAITING and row.ready_at is None)


if __name__ == "__main__":
    main()
