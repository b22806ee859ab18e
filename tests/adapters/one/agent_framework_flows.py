"""Workflows of the Microsoft Agent Framework."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Never

from agent_framework import (
    AgentExecutorResponse,
    Executor,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
)

import holdfast
from holdfast.adapters.agent_framework import durable
from tests.adapters.one.agent_framework_cases import agent_of
from tests.adapters.readers import reader
from tests.adapters.world import World

SOON = holdfast.Retry(backoff=timedelta(milliseconds=1))


@dataclass
class Question:
    about: str


@dataclass
class Found:
    by: str
    what: str


class Asks(Executor):
    """Asks somebody, and does something with the answer."""

    def __init__(self, id: str, world: World) -> None:
        super().__init__(id)
        self._world = world

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[Found]) -> None:
        self._world.effect(f"{self.id} asks about {text}")
        await ctx.request_info(Question(text), str)

    @response_handler
    async def answered(self, asked: Question, answer: str, ctx: WorkflowContext[Found]) -> None:
        self._world.effect(f"{self.id} hears {answer}")
        await ctx.send_message(Found(self.id, f"{asked.about}: {answer}"))


class Gathers(Executor):
    """Waits until it has heard of all."""

    def __init__(self, world: World, expected: int) -> None:
        super().__init__("gathers")
        self._world, self._expected = world, expected
        self._heard: list[Found] = []

    @handler
    async def hear(self, found: Found, ctx: WorkflowContext[Never, list[Found]]) -> None:
        await self._add(found, ctx)

    @handler
    async def hear_agent(
        self, found: AgentExecutorResponse, ctx: WorkflowContext[Never, list[Found]]
    ) -> None:
        await self._add(Found("agent", found.agent_response.text), ctx)

    async def _add(self, found: Found, ctx: WorkflowContext[Never, list[Found]]) -> None:
        self._world.effect(f"heard {found.by}")
        self._heard.append(found)
        if len(self._heard) == self._expected:
            await ctx.yield_output(sorted(self._heard, key=lambda one: one.by))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"heard": [[one.by, one.what] for one in self._heard]}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self._heard = [Found(*one) for one in state["heard"]]


def superstep(world: World) -> tuple[Any, list[Any]]:
    """Two that ask somebody, and one that fails at first, all at once; then an agent."""
    tries = itertools.count()

    @executor(id="begins")
    async def begins(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    @executor(id="fails")
    async def fails(text: str, ctx: WorkflowContext[str]) -> None:
        await note(text)
        if next(tries) == 0:
            raise RuntimeError("not yet")
        await ctx.send_message(f"more of {text}")

    @holdfast.step
    async def note(text: str) -> None:
        await asyncio.to_thread(world.effect, f"note for {text}")

    at_once = [Asks("left", world), Asks("right", world), fails]
    gathers, agent = Gathers(world, len(at_once)), agent_of(world)
    builder = WorkflowBuilder(name="superstep", start_executor=begins, output_from=[gathers])
    builder.add_fan_out_edges(begins, at_once)
    for one, other in [
        (at_once[0], gathers),
        (at_once[1], gathers),
        (fails, agent),
        (agent, gathers),
    ]:
        builder.add_edge(one, other)
    return told(durable(builder.build(), retry=SOON)), ["owls"]


def told(workflow: Any) -> Any:
    """What the workflow's own run does, as JSON."""
    run = vars(workflow)["__holdfast_workflow__"]

    @holdfast.workflow(name="told")
    async def told(question: str) -> list[Any]:
        return [[[one.by, one.what] for one in found] for found in await run(question)]

    return told


# Executors that remember


class Counts(Executor):
    """With hooks for checkpoints; it fails now and then, when it has counted."""

    def __init__(self, world: World) -> None:
        super().__init__("counts")
        self._world, self._tries = world, itertools.count()
        self.count = 0

    @handler
    async def add(self, number: int, ctx: WorkflowContext[int]) -> None:
        self.count += 1
        if next(self._tries) % 3 == 0:
            raise RuntimeError("not yet")
        self._world.effect(f"counts {self.count}")
        ctx.set_state("last", self.count)
        await ctx.send_message(self.count)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"count": self.count}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Caches(Executor):
    """Without them."""

    def __init__(self, world: World) -> None:
        super().__init__("caches")
        self._world = world
        self.cache: dict[int, str] = {}

    @handler
    async def keep(self, number: int, ctx: WorkflowContext[int, dict[str, Any]]) -> None:
        self._world.effect(f"caches {number}")
        self.cache[number] = f"n{number}"
        if number < 4:
            await ctx.send_message(number)
        else:
            await ctx.yield_output({"cache": self.cache, "last": ctx.get_state("last")})


def remembers(world: World) -> tuple[Any, list[Any]]:
    counts, caches = Counts(world), Caches(world)
    builder = WorkflowBuilder(name="remembers", start_executor=counts)
    builder.add_edge(counts, caches).add_edge(caches, counts)
    return durable(builder.build(), retry=SOON), [0]


# Workflows inside workflows


@executor(id="says")
async def says(found: Found, ctx: WorkflowContext[Never, Found]) -> None:
    await ctx.yield_output(Found("sub", found.what))


def nested(world: World) -> tuple[Any, list[Any]]:
    asks = Asks("asks", world)
    inner = WorkflowBuilder(name="inner", start_executor=asks).add_edge(asks, says).build()
    sub = WorkflowExecutor(inner, id="sub", propagate_request=True)
    gathers = Gathers(world, 1)
    outer = WorkflowBuilder(name="outer", start_executor=sub).add_edge(sub, gathers)
    return told(durable(outer.build())), ["owls"]


def heard(world: World) -> tuple[Any, list[Any]]:
    """An agent in a workflow, whose updates are handed on by the executor around it."""
    flow = durable(WorkflowBuilder(name="flow", start_executor=agent_of(world, "one")).build())
    return reader(world, lambda question: flow.run(question, stream=True))
