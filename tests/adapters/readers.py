"""Workflows that call a step with each event of a stream, while the stream goes on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import holdfast
from holdfast.testing.model_server import Reply
from tests.adapters.harness import Zygote, check_every_kill
from tests.adapters.world import World

SCRIPT = [
    Reply(tool_calls=[("search", {"q": "one"})]),
    Reply(text="All is well.\nReally.", chunk=9),
]
PACE_SECONDS = 0.01  # between two pieces: time enough for a step and its commit
EVERY = [7, pytest.param(1, marks=pytest.mark.full)]
"""Of the commits after which they are killed."""


Hear = Callable[[], Awaitable[None]]


def listener(world: World, listen: Callable[[str, Hear], Awaitable[Any]]) -> tuple[Any, list[Any]]:
    """listen: calls `hear` for each event."""

    @holdfast.step(name="hear")
    async def note(n: int) -> None:
        await asyncio.to_thread(world.effect, f"heard {n}")

    @holdfast.workflow
    async def reads(question: str) -> int:
        heard = itertools.count()
        await listen(question, lambda: note(next(heard)))
        return next(heard)

    return reads, ["why"]


def reader(world: World, events: Callable[[str], AsyncIterator[Any]]) -> tuple[Any, list[Any]]:
    async def listen(question: str, hear: Hear) -> None:
        async for _ in events(question):
            await hear()

    return listener(world, listen)


def check(zygote: Zygote, case: str, every: int) -> None:
    # A reader may be beside the agent, which asks its model already when the step is on record that
    # was called with the last event before.
    outcome = check_every_kill(
        zygote, case, SCRIPT, every=every, at_once=True, pace_seconds=PACE_SECONDS
    )
    assert outcome["result"] > len(SCRIPT)
