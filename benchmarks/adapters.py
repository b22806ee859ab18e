"""What an adapter costs for each call of a model: `make bench-frameworks`.

The same agent answers the same questions by itself, as its framework does it, and in runs. The
difference is what the adapter costs, and the commit. The store is in memory: what a disk takes for
a commit comes on top, and is measured by `make bench`. A plain step on the same store is shown
beside it.

Plain calls and durable ones take turns, and each figure is a difference of short times, not of the
shortest and not of all: whatever else a machine does makes them longer. On a busy one believe the
milliseconds of CPU, and those with care.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import holdfast
from benchmarks.agents import ENVIRONMENTS, Ask, Nowhere
from benchmarks.figures import Figure, percentile, table
from holdfast.testing.model_server import Asked, ModelServer, Reply
from tests.adapters.harness import QUIET

ROUNDS = int(os.environ.get("ROUNDS", "50"))
QUICK_PERCENT = 20
CALLS = 8  # of a model, in a conversation
ALONE = "Ask 0 tools in 1 turns"
WITH_TOOL, WITH_TOOLS = f"Ask 1 tools in {CALLS} turns", f"Ask 2 tools in {CALLS} turns"
STEPS, RUN = "steps", "run"
QUESTIONS = ((ALONE, 3), (WITH_TOOL, 1), (WITH_TOOLS, 1))

Spent = tuple[float, float]  # milliseconds, and those of CPU


class Times:
    """How long things took, by what was done."""

    def __init__(self) -> None:
        self._all: dict[str, list[Spent]] = {}

    async def spend(self, what: str, work: Awaitable[object]) -> None:
        begun, cpu = time.perf_counter(), time.process_time()
        await work
        spent = (time.perf_counter() - begun) * 1000, (time.process_time() - cpu) * 1000
        self._all.setdefault(what, []).append(spent)

    def several(self, ask: Ask) -> Callable[[str, int], Awaitable[None]]:
        """Each is taken by itself, so that one of them may be left alone by the machine."""

        async def several(question: str, times: int) -> None:
            for _ in range(times):
                await self.spend(question, ask(question))

        return several

    def forget(self) -> None:
        self._all.clear()

    def of(self, what: str, which: int) -> float:
        return percentile([spent[which] for spent in self._all[what]], QUICK_PERCENT)


async def measure(make: Callable[..., Any], cases: Any, url: str) -> list[Figure]:
    world = Nowhere(url, "", "")
    ask, close = make(cases, world, lambda agent: agent)
    ask_durably, close_durable = make(cases, world, cases.durable)
    plain, durable = Times(), Times()
    workflow = holdfast.workflow(name="several")(durable.several(ask_durably))
    steps = holdfast.workflow(name=STEPS)(durable.several(plain_step))

    async with holdfast.Holdfast(":memory:", workflows=[workflow, steps]) as app:

        async def run(workflow: Any, *arguments: Any) -> None:
            await (await app.start(workflow, *arguments)).result()

        for n in range(ROUNDS):
            gc.collect()
            for question, times in QUESTIONS:
                await plain.several(ask)(question, times)
                await run(workflow, question, times)
            await durable.spend(RUN, run(workflow, "", 0))
            await run(steps, STEPS, CALLS)
            if not n:  # that was to warm up
                plain.forget()
                durable.forget()
    await close()
    await close_durable()
    return list(_figures(make.__name__, plain, durable))


@holdfast.step
async def plain_step(question: str) -> dict[str, str]:
    return {"role": "assistant", "content": "All is well."}


def _figures(bench: str, plain: Times, durable: Times) -> Iterator[Figure]:
    for which, unit in ((0, "ms"), (1, "ms of CPU")):
        more = {asked: durable.of(asked, which) - plain.of(asked, which) for asked, _ in QUESTIONS}
        tool = (more[WITH_TOOLS] - more[WITH_TOOL]) / (CALLS - 1)
        further = (more[WITH_TOOL] - more[ALONE]) / (CALLS - 1) - tool
        values = {
            "an agent's first call of its model, more than without": more[ALONE],
            "each further call in its conversation": further,
            "for comparison: a plain step and its commit": durable.of(STEPS, which),
            "for comparison: the call without Holdfast": plain.of(ALONE, which),
            "apart from it: a call of a tool, and a step inside": tool,
            "apart from it: a run, from its start to its result": durable.of(RUN, which),
        }
        for n, (what, value) in enumerate(values.items()):
            target = "2, and the commit" if n < 2 else ""
            yield Figure(bench=bench, what=what, value=value, unit=unit, target=target)


# The model


def answer(asked: Asked) -> Reply:
    found = re.search(r"Ask (\d) tools in (\d) turns", str(asked.body))
    tools, turns = map(int, found.groups()) if found else (0, 0)
    if asked.turn + 1 >= turns:
        return Reply(text="All is well.")
    calls = [("search", {"q": f"question {asked.turn}.{n}"}) for n in range(tools)]
    return Reply(tool_calls=calls)


@contextmanager
def model_server() -> Iterator[str]:
    """In a process of its own: what it does is not the agent's doing."""
    command = [sys.executable, "-m", "benchmarks.adapters", "model"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdin is not None and it.stdout is not None
        yield it.stdout.readline().strip()
        it.stdin.close()


def _serve() -> None:
    with ModelServer(answer) as model:
        print(model.url, flush=True)
        sys.stdin.read()


def main() -> None:
    os.environ.update(QUIET)
    logging.getLogger("crewai").setLevel(logging.ERROR)  # it warns of each call to a model "m"
    environment, *only = sys.argv[1:]
    if environment == "model":
        _serve()
        return
    figures: list[Figure] = []
    with model_server() as url:
        for make in ENVIRONMENTS[environment]:
            if only and make.__name__ not in only:
                continue
            cases = importlib.import_module(f"tests.adapters.{environment}.{make.__name__}_cases")
            figures += asyncio.run(measure(make, cases, url))
    print(table(figures))


if __name__ == "__main__":
    main()
