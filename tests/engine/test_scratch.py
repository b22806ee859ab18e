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
    with pytest.raises(holdfast.NotInRun, match="inside of a run"):
        holdfast.on_leave(_nothing)


async def _nothing() -> None: ...


async def test_what_a_run_holds_is_closed_whenever_it_leaves_memory() -> None:
    closed: list[str] = []

    @holdfast.step
    async def opens(what: str) -> None:
        async def close() -> None:
            assert holdfast.current_run() is None
            await asyncio.sleep(0)
            closed.append(what)

        holdfast.on_leave(close)

    @holdfast.workflow
    async def waits() -> None:
        await opens("first")
        await holdfast.promise("answer")
        await asyncio.to_thread(lambda: None)
        await opens("second")

    async with Environment(workflows=[waits]) as env:
        run = await env.app.start(waits)
        await env.settle()
        assert closed == ["first"]  # while it waits
        await run.resolve("answer", None)
        await run.result()
    assert closed == ["first", "second"]


async def test_what_cannot_be_closed_is_told_and_stops_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = []

    async def fail() -> None:
        raise RuntimeError("stuck")

    async def close() -> None:
        closed.append(True)

    @holdfast.workflow
    async def holds() -> None:
        holdfast.on_leave(fail)
        holdfast.on_leave(close)

    async with Environment(workflows=[holds]) as env:
        await (await env.app.start(holds)).result()
    assert closed == [True]
    assert "held open could not be closed" in caplog.text
