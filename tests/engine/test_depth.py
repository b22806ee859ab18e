"""Steps and calls that are nested too deep end their run by name: nothing hangs, nobody else
suffers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.engine.depth import STEPS_MAX
from holdfast.errors import RunFailed, TooDeep
from holdfast.testing import Environment, crash_everywhere


@holdfast.step
async def down(levels: int) -> int:
    if levels > 1:
        return 1 + await down(levels - 1)
    async with asyncio.timeout(60):
        return await asyncio.create_task(asyncio.to_thread(int, 1))


@holdfast.step
def down_in_a_thread(levels: int) -> int:
    return 1 + down_in_a_thread(levels - 1) if levels > 1 else 1


@holdfast.step
async def down_by_tasks(levels: int) -> int:
    if levels <= 1:
        return 1
    return 1 + (await asyncio.gather(down_by_tasks(levels - 1)))[0]


@holdfast.workflow
async def goes_down(levels: int) -> int:
    return await down(levels)


@holdfast.workflow
def goes_down_in_a_thread(levels: int) -> int:
    return down_in_a_thread(levels)


@holdfast.workflow
async def goes_down_by_tasks(levels: int) -> int:
    return await down_by_tasks(levels)


EACH = [goes_down, goes_down_in_a_thread, goes_down_by_tasks]


@pytest.mark.parametrize("workflow", EACH, ids=lambda w: w.name)
async def test_as_many_nested_steps_as_promised_are_executed(
    workflow: holdfast.Workflow[[int], int],
) -> None:
    async with Environment([workflow]) as env:
        assert await env.result(await env.start(workflow, STEPS_MAX)) == STEPS_MAX


@pytest.mark.parametrize("levels", [STEPS_MAX + 1, 400])
@pytest.mark.parametrize("workflow", EACH, ids=lambda w: w.name)
async def test_more_nested_steps_fail_the_run_and_say_what_to_do(
    workflow: holdfast.Workflow[[int], int], levels: int
) -> None:
    async with Environment([workflow]) as env:
        run = await env.start(workflow, levels)
        with pytest.raises(
            RunFailed, match=rf"inside {STEPS_MAX} steps.*holdfast\.child"
        ) as caught:
            await env.result(run)
        assert isinstance(caught.value.__cause__, TooDeep)
    assert len(env.started) == STEPS_MAX  # none was tried again


async def test_a_run_that_nests_too_deep_fails_alike_after_a_crash() -> None:
    @holdfast.workflow
    async def catches() -> str:
        try:
            await down(STEPS_MAX + 1)
        except TooDeep:
            return await after()
        return "deep enough"

    async with Environment([catches]) as env:
        run = await env.start(catches)
        env.on_step = None
        assert await env.result(run) == "after"
        await env.crash()
        assert await env.result(run) == "after"


@holdfast.step
async def after() -> str:
    return "after"


# Python's own limit


@holdfast.workflow
async def child() -> int:
    return 1


async def event() -> None:
    event = asyncio.Event()
    waiter = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    event.set()
    await waiter


async def values() -> None:
    holdfast.now()
    holdfast.once(lambda: 3)


async def session() -> None:
    holdfast.session().append("hello")


async def task() -> None:
    await asyncio.create_task(down(2))


CALLS: dict[str, Callable[[], Awaitable[Any]]] = {
    "step": lambda: down(2),
    "task": task,
    "gather": lambda: asyncio.gather(down(1), down(2)),
    "thread": lambda: asyncio.to_thread(down_in_a_thread, 1),
    "plain thread": lambda: asyncio.to_thread(abs, 1),
    "sleep": lambda: holdfast.sleep(timedelta(seconds=1)),
    "asyncio sleep": lambda: asyncio.sleep(1),
    "child": lambda: holdfast.child(child),
    "race": lambda: holdfast.race(one=down(1), late=timedelta(seconds=1)),
    "event": event,
    "values": values,
    "session": session,
}


@holdfast.workflow
async def calls_deep_down(name: str, depth: int) -> str:
    async def deeper(left: int) -> None:
        if left:
            await deeper(left - 1)
        else:
            await CALLS[name]()

    await deeper(depth)
    return await after()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("name", CALLS)
async def test_the_recursion_limit_fails_a_run_wherever_it_strikes_and_stops_no_other(
    name: str,
) -> None:
    limit = sys.getrecursionlimit()
    ends = set()
    async with Environment([calls_deep_down, child]) as env:
        for depth in range(limit - 240, limit, 7):
            app = env.app.with_options(session=f"s{depth}")
            run = await app.start(calls_deep_down, name, depth)
            ends.add((await env.ended(run.id)).status)
    assert ends == {"completed", "failed"}


async def test_a_recursion_error_of_the_users_own_fails_the_step_and_can_be_caught() -> None:
    @holdfast.step(retry=holdfast.Retry(attempts=1))
    async def endless() -> int:
        def forever() -> int:
            return forever()

        return forever()

    @holdfast.workflow
    async def catches() -> str:
        try:
            await endless()
        except RecursionError:
            return await after()
        return "it ended"

    assert (await crash_everywhere(catches)).result == "after"


async def test_a_recursion_error_of_the_body_fails_the_run() -> None:
    @holdfast.workflow
    async def endless() -> int:
        async def forever() -> int:
            return await forever()

        await after()
        return await forever()

    assert isinstance((await crash_everywhere(endless)).result, RecursionError)
