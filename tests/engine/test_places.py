"""Code that belongs to one place of a run, called from tasks and threads elsewhere in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import holdfast
from holdfast.testing import crash_everywhere


@holdfast.step
async def note(text: str) -> str:
    return text


@holdfast.step
def write(text: str) -> str:
    return text


async def framework_1(work: Callable[[], Any]) -> Any:
    return await asyncio.create_task(work())


async def framework_2(work: Callable[[], Any]) -> Any:
    """A newer version, with a task more, of another name."""

    async def again() -> Any:
        return await framework_1(work)

    return await asyncio.create_task(again())


@holdfast.workflow
async def calls(newer: bool) -> list[str]:
    here = holdfast.here()
    framework = framework_2 if newer else framework_1

    async def work() -> str:
        with holdfast.placed(here):
            await asyncio.create_task(note("in a task"))
            return await note("in a body")

    def work_in_thread() -> str:
        with holdfast.placed(here):
            return write("in a thread")

    async def send() -> str:
        return await asyncio.to_thread(work_in_thread)

    return [await framework(work), await inside(newer), await framework(send)]


@holdfast.step
async def inside(newer: bool) -> str:
    here = holdfast.here()

    async def work() -> str:
        with holdfast.placed(here):
            return await note("in a step")

    return str(await (framework_2 if newer else framework_1)(work))


async def keys_of(newer: bool) -> set[str]:
    async with holdfast.Holdfast(":memory:", workflows=[calls]) as app:
        run = await app.start(calls, newer)
        assert await run.result() == ["in a body", "in a step", "in a thread"]
        return {entry.key for entry in await app.history(run.id) if entry.kind == "step"}


async def test_the_tasks_and_threads_of_a_framework_are_in_no_key() -> None:
    keys = {"/note#0", "/note#1", "/inside#0", "/inside#0/note#0", "/write#0"}
    assert await keys_of(False) == await keys_of(True) == keys


async def test_calls_from_elsewhere_are_found_on_replay() -> None:
    result = ["in a body", "in a step", "in a thread"]
    assert (await crash_everywhere(calls, True)).result == result


async def test_the_body_of_a_step_cannot_be_left_for_another_place() -> None:
    @holdfast.workflow
    async def leaves() -> str:
        here = holdfast.here()

        @holdfast.step
        async def stays() -> str:
            with holdfast.placed(here):
                return await note("in the step")

        return await stays()

    async with holdfast.Holdfast(":memory:", workflows=[leaves]) as app:
        run = await app.start(leaves)
        assert await run.result() == "in the step"
        assert "/stays#0/note#0" in {entry.key for entry in await app.history(run.id)}


async def test_outside_of_runs_nothing_is_placed() -> None:
    with holdfast.placed(holdfast.here()):
        assert await note("plain") == "plain"


async def test_branches_have_their_names_from_when_they_were_made() -> None:
    @holdfast.workflow
    async def turns_around() -> list[str]:
        places = [holdfast.here("work") for _ in range(2)]

        async def work(n: int) -> str:
            with holdfast.placed(places[n]):
                return await note(str(n))

        return [await work(1), await work(0)]

    async with holdfast.Holdfast(":memory:", workflows=[turns_around]) as app:
        run = await app.start(turns_around)
        assert await run.result() == ["1", "0"]
        keys = [entry.key for entry in await app.history(run.id) if entry.kind == "step"]
        assert keys == ["/work@1/note#0", "/work@0/note#0"]
    assert (await crash_everywhere(turns_around)).result == ["1", "0"]
