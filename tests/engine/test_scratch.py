"""What an execution of a run keeps in memory, for adapters."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast.testing import Environment


async def test_what_is_kept_in_memory_is_seen_in_all_of_a_run_and_in_no_other() -> None:
    @holdfast.step
    async def counted() -> int:
        holdfast.scratch()["steps"] = holdfast.scratch().get("steps", 0) + 1
        return int(holdfast.scratch()["bodies"])

    @holdfast.workflow
    async def counts(number: int) -> list[int]:
        found = holdfast.scratch()
        assert found == {}
        found["bodies"] = number
        seen = await asyncio.gather(counted(), counted())
        in_thread = await asyncio.to_thread(lambda: holdfast.scratch()["bodies"])
        return [*seen, in_thread, found["steps"]]

    async with Environment(workflows=[counts]) as env:
        runs = [await env.app.start(counts, number) for number in (3, 4)]
        assert [await run.result() for run in runs] == [[3, 3, 3, 2], [4, 4, 4, 2]]


async def test_a_replay_finds_nothing_in_memory() -> None:
    @holdfast.step
    async def wrote() -> None:
        holdfast.scratch()["written"] = True

    @holdfast.workflow
    async def waits() -> bool:
        await wrote()
        await holdfast.promise("answer")
        return "written" in holdfast.scratch()

    async with Environment(workflows=[waits]) as env:
        run = await env.app.start(waits)
        await env.settle()
        await run.resolve("answer", None)
        assert await run.result() is False


def test_outside_of_runs_there_is_none() -> None:
    with pytest.raises(holdfast.NotInRun, match="inside of a run"):
        holdfast.scratch()
