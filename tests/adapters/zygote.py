"""A process that has imported a framework, and forks one that runs an agent whenever it is told to.

To import some frameworks takes seconds; a run is to be killed dozens of times. What it forks has no
state but the imported modules, and ends by SIGKILL or when its run is over.

    python -m tests.adapters.zygote tests.adapters.one.openai_cases
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import holdfast
from holdfast.store.base import Append, Operation, Outcome
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing import Environment
from tests.adapters.world import World

PATIENCE_SECONDS = 60
SOON = holdfast.WorkerOptions(memory_wait=timedelta(0), unsure_wait=timedelta(milliseconds=50))


def main() -> None:
    cases = importlib.import_module(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _child(cases, task)
        _, status = os.waitpid(pid, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print(json.dumps({"killed": killed, "status": status}), flush=True)


def _child(cases: Any, task: dict[str, Any]) -> None:
    code = 0
    try:
        with open(task["log"], "a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        live = _rest if task["rests"] else _run
        outcome = asyncio.run(live(getattr(cases, task["case"]), task))
        Path(task["out"]).write_text(json.dumps(outcome))
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        os._exit(code)


def _built(case: Any, task: dict[str, Any]) -> tuple[Any, list[Any]]:
    folder = str(Path(task["store"]).parent)
    found: tuple[Any, list[Any]] = case(World(task["model_url"], task["effects_url"], folder))
    return found


def _answers(task: dict[str, Any]) -> dict[str, Any]:
    return {
        promise: holdfast.Decision(**answer)
        if isinstance(answer, dict) and "approved" in answer
        else answer
        for promise, answer in task["answers"].items()
    }


async def _rest(case: Any, task: dict[str, Any]) -> dict[str, Any]:
    """Answers one question after the other, each when it is asked and nothing of the run is in
    memory any more; looks at the run then."""
    workflow, args = _built(case, task)
    rests = []
    async with Environment([workflow], clock=holdfast.SystemClock(), worker_options=SOON) as env:
        run = await env.start(workflow, *args)
        for promise, answer in _answers(task).items():
            async with asyncio.timeout(PATIENCE_SECONDS):
                await _asked(env, run, promise)
                rests.append(await run.why())
                await _left(env)
            await run.resolve(promise, answer)
        result = await asyncio.wait_for(run.result(), PATIENCE_SECONDS)
    return {"rests": rests, "result": result}


async def _asked(env: Environment, run: holdfast.Run[Any], promise: str) -> None:
    names: set[str] = set()
    while promise not in names:
        names = {one.name for one in await env.app.promises(run.id)}
        await asyncio.sleep(0.001)


async def _left(env: Environment) -> None:
    in_memory = True
    while in_memory:
        await asyncio.sleep(0.001)
        in_memory = bool(env.worker.runs)


async def _run(case: Any, task: dict[str, Any]) -> dict[str, Any]:
    store = MortalStore(task["store"], task["die_after"])
    workflow, args = _built(case, task)
    async with holdfast.Holdfast(store, workflows=[workflow]) as app:
        run = await app.with_options(id=task["run"]).start(workflow, *args)
        for promise, answer in _answers(task).items():
            try:
                await run.resolve(promise, answer, early=True)
            except (holdfast.AlreadyResolved, holdfast.AlreadyEnded):
                pass  # by the process that died
        try:
            outcome = {"result": await asyncio.wait_for(run.result(), 120)}
        except holdfast.RunFailed as error:
            outcome = {"error": repr(error.__cause__)}
        keys = [f"{entry.kind} {entry.key}" for entry in await app.history(run.id)]
    return {**outcome, "commits": store.commits, "keys": keys}


class MortalStore(SQLiteStore):
    """Ends its process by SIGKILL right after the k-th commit of entries."""

    def __init__(self, path: str, die_after: int | None) -> None:
        super().__init__(path)
        self.commits = 0
        self._die_after = die_after

    async def commit(self, operations: Sequence[Operation], *, request: str = "") -> list[Outcome]:
        outcomes = await super().commit(operations, request=request)
        if any(isinstance(one, Append) and one.entries for one in operations):
            self.commits += 1
            if self.commits == self._die_after:
                os.kill(os.getpid(), signal.SIGKILL)
        return outcomes


if __name__ == "__main__":
    main()
