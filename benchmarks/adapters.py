"""What an adapter costs for each call of a model: `make bench-frameworks`.

The same agent answers the same questions plainly, as a framework does by itself, and in runs. The
difference is shared out over the calls of models; with each comes a call of a tool, which has a
step inside. The store is in memory: what a disk takes for the commits comes on top.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

import holdfast
from benchmarks.figures import Figure, table
from holdfast.adapters._shared import AGENT_WORKFLOW
from holdfast.testing.model_server import ModelServer, Reply
from tests.adapters.harness import QUIET, EffectServer
from tests.adapters.world import World

CALLS = 4  # of models, in one conversation
ROUNDS = 25
SCRIPT = [
    *(Reply(tool_calls=[("search", {"q": f"question {n}"})]) for n in range(CALLS - 1)),
    Reply(text="All is well."),
]
AGENTS = {
    "one": {
        "openai_agents": "plain",
        "pydantic_ai": "started",
        "langgraph": "agent",
        "strands": "plain",
        "agent_framework": "started",
        "google_adk": "plain",
    },
    "two": {"crewai": "own_run"},
}


Make = Callable[[], tuple[Any, list[Any]]]


async def measure(framework: str, environment: str, case: str) -> list[Figure]:
    cases = importlib.import_module(f"tests.adapters.{environment}.{framework}_cases")
    effects = EffectServer()
    effects.start()
    with ModelServer(SCRIPT) as model, tempfile.TemporaryDirectory() as folder:
        world = World(model.url, effects.address, folder)
        make: Make = functools.partial(getattr(cases, case), world)
        for once in (_plainly, _durably):
            await once(make)  # what happens only the first time
        rounds = [  # turn by turn, as the machine may be slower now than then
            (await _plainly(make), await _durably(make)) for _ in range(ROUNDS)
        ]
    effects.stop()
    what = "a call of a model and its tool, more than without"
    return [
        Figure(bench=framework, what=what, value=_more(rounds, which), unit=unit, target=target)
        for which, unit, target in ((0, "ms", "2, and the commits"), (1, "ms of CPU", ""))
    ]


async def _plainly(make: Make) -> Spent:
    """A new agent each time, as some remember what they were asked."""
    agent, arguments = make()
    workflow: Any = getattr(agent, AGENT_WORKFLOW, agent)
    fn = getattr(agent, "kickoff_async", None) or workflow.fn  # CrewAI's own way, if it is a crew
    in_thread = functools.partial(asyncio.to_thread, fn)
    return await _spent(fn if inspect.iscoroutinefunction(fn) else in_thread, *arguments)


async def _durably(make: Make) -> Spent:
    agent, arguments = make()
    async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:

        async def run() -> None:
            await (await app.start(agent, *arguments)).result()

        return await _spent(run)


Spent = tuple[float, float]  # milliseconds, and those of CPU


def _more(rounds: list[tuple[Spent, Spent]], which: int) -> float:
    plain = statistics.median(plain[which] for plain, _ in rounds)
    return (statistics.median(durable[which] for _, durable in rounds) - plain) / CALLS


async def _spent(call: Callable[..., Awaitable[object]], *arguments: Any) -> Spent:
    begun, cpu = time.perf_counter(), time.process_time()
    await call(*arguments)
    return (time.perf_counter() - begun) * 1000, (time.process_time() - cpu) * 1000


def main() -> None:
    os.environ.update(QUIET)
    (environment,) = sys.argv[1:]
    agents: dict[str, Any] = AGENTS[environment]
    found = [asyncio.run(measure(name, environment, case)) for name, case in agents.items()]
    print(table([figure for figures in found for figure in figures]))


if __name__ == "__main__":
    main()
