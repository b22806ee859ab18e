"""What a rerun forgets, and what it keeps."""

from __future__ import annotations

from datetime import timedelta

import pytest

import holdfast
from holdfast.testing import Environment
from holdfast.types import Kind


class Down(Exception):
    pass


DAY = timedelta(days=1)
down = True
log: list[str] = []
ONCE = holdfast.Retry(attempts=1)


@holdfast.step(retry=ONCE)
async def act(name: str) -> str:
    log.append(name)
    if down and name.startswith("bad"):
        raise Down(name)
    return name


@holdfast.step(retry=ONCE)
async def tool() -> list[str]:
    return [await act("inner"), await act("bad inner")]


@holdfast.workflow
async def handles_one_failure_and_dies_of_another() -> list[str]:
    done = [await act("first")]
    try:
        await act("bad but handled")
    except Down:
        done.append(await act("instead"))
    try:
        done += await tool()
    except Down:
        await act("clean up")
        raise
    return done


async def test_a_rerun_goes_on_at_the_step_that_failed_and_repeats_nothing_else() -> None:
    global down
    down = True
    log.clear()
    workflows = [handles_one_failure_and_dies_of_another]
    async with holdfast.Holdfast("sqlite://:memory:", workflows=workflows) as app:
        run = await app.start(handles_one_failure_and_dies_of_another)
        try:
            await run.result()
        except holdfast.RunFailed as error:
            assert isinstance(error.__cause__, Down)
        assert log == [
            "first",
            "bad but handled",
            "instead",
            "inner",
            "bad inner",
            "clean up",
        ]
        down = False
        log.clear()
        again = await run.rerun()
        assert await again.result() == ["first", "instead", "inner", "bad inner"]
        assert log == ["bad inner"]
        failed = [e.key for e in await run.history() if e.kind is Kind.STEP and e.failed]
        assert failed == ["/act#1"], "a failure that the workflow dealt with stays as it was"


@holdfast.workflow
async def child() -> str:
    return await act("bad in a child")


@holdfast.workflow
async def parent() -> list[str]:
    return [await act("first"), await holdfast.child(child)]


async def test_a_rerun_of_a_parent_runs_its_failed_child_again() -> None:
    global down
    down = True
    log.clear()
    async with holdfast.Holdfast("sqlite://:memory:", workflows=[parent, child]) as app:
        run = await app.start(parent)
        with pytest.raises(holdfast.RunFailed):
            await run.result()
        down = False
        again = await run.rerun()
        assert await again.result() == ["first", "bad in a child"]
        assert log == ["first", "bad in a child", "bad in a child"]


@holdfast.workflow
async def waits_for_a_child() -> list[str]:
    try:
        await holdfast.child(child.with_options(id="lost before", delay=DAY))
    except holdfast.RunCancelled:
        await act("instead")
    return [await act("first"), await holdfast.child(child.with_options(id="lost", delay=DAY))]


async def test_a_rerun_of_a_parent_whose_child_was_cancelled_runs_that_child_again() -> None:
    global down
    down = False
    log.clear()
    async with Environment([waits_for_a_child, child]) as env:
        run = await env.start(waits_for_a_child)
        await env.settle()
        await env.app.cancel("lost before")
        await env.settle()
        await env.app.cancel("lost")
        await env.settle()
        assert await run.status() is holdfast.Status.FAILED
        await run.rerun()
        assert await env.result(run) == ["first", "bad in a child"]
        assert await env.app.get("lost before").status() is holdfast.Status.CANCELLED
    assert log == ["instead", "first", "bad in a child"]


fixed = False


@holdfast.workflow
async def fails_by_itself() -> str:
    try:
        await act("bad but handled")
    except Down:
        await act("instead")
    if not fixed:
        raise ValueError("a bug in the workflow")
    return "done"


async def test_a_rerun_of_a_run_that_failed_by_itself_repeats_no_step() -> None:
    global down, fixed
    down, fixed = True, False
    log.clear()
    async with holdfast.Holdfast("sqlite://:memory:", workflows=[fails_by_itself]) as app:
        run = await app.start(fails_by_itself)
        with pytest.raises(holdfast.RunFailed, match="a bug in the workflow"):
            await run.result()
        fixed = True
        again = await run.rerun()
        assert await again.result() == "done"
        assert log == ["bad but handled", "instead"]
