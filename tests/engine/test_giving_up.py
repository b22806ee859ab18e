"""Runs that cannot go on, and are to end all the same."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import holdfast
from holdfast import Status
from holdfast.testing import Environment

HOUR = timedelta(hours=1)


@holdfast.step
async def note(text: str) -> str:
    return text


@holdfast.workflow
async def quick() -> int:
    return 1


@holdfast.workflow
async def cleans_up() -> None:
    await note("begin")
    try:
        await holdfast.sleep(HOUR)
    finally:
        await note("clean")


class Changing:
    """A workflow whose code is replaced while its runs are under way."""

    def __init__(self) -> None:
        self.first = "old"

        @holdfast.workflow(name="changing")
        async def changing() -> Any:
            await (note if self.first == "old" else other)(self.first)
            return await holdfast.promise("answer", int)

        self.workflow = changing


@holdfast.step
async def other(text: str) -> str:
    return text


async def diverged(env: Environment, code: Changing, **options: Any) -> Any:
    run = await env.app.with_options(session="s", **options).start(code.workflow)
    await env.settle()
    code.first = "new"
    await env.crash()
    await run.resolve("answer", 1)
    await env.settle()
    assert await run.status() is Status.PARKED
    return run


async def test_a_diverged_run_that_is_cancelled_ends_and_frees_its_session() -> None:
    code = Changing()
    async with Environment([code.workflow, quick]) as env:
        run = await diverged(env, code)
        behind = await env.app.with_options(session="s").start(quick)
        await run.cancel()
        await env.settle()
        assert await run.status() is Status.CANCELLED
        assert await env.result(behind) == 1


async def test_a_cancelled_diverged_run_goes_on_when_its_code_is_back() -> None:
    code = Changing()
    async with Environment([code.workflow]) as env:
        run = await diverged(env, code)
        await run.cancel()
        await env.settle()
        code.first = "old"
        assert await env.result(await run.rerun()) == 1


async def test_mail_does_not_end_a_diverged_run() -> None:
    code = Changing()
    async with Environment([code.workflow]) as env:
        run = await diverged(env, code)
        await run.send("hello")
        await run.resume()
        await env.settle()
        assert await run.status() is Status.PARKED


async def test_a_run_that_was_cancelled_before_its_code_changed_ends() -> None:
    code = Changing()

    @holdfast.workflow
    async def unwinds() -> None:
        await (note if code.first == "old" else other)("begin")
        try:
            await holdfast.promise("answer", int)
        finally:
            await holdfast.sleep(HOUR)

    async with Environment([unwinds]) as env:
        run = await env.start(unwinds)
        await env.settle()
        await run.cancel()
        await env.settle()
        code.first = "new"
        await env.crash()
        await env.advance(2 * HOUR)
        assert await run.status() is Status.CANCELLED


async def test_a_pause_after_a_cancel_changes_nothing() -> None:
    async with Environment([cleans_up]) as env:
        run = await env.start(cleans_up)
        await env.settle()
        await run.cancel()
        await run.pause()
        await env.settle()
        assert await run.status() is Status.CANCELLED
        assert env.started[-1].startswith("/note#1")


async def test_a_paused_run_that_is_cancelled_unwinds() -> None:
    async with Environment([cleans_up]) as env:
        run = await env.start(cleans_up)
        await env.settle()
        await run.pause()
        await env.settle()
        assert await run.status() is Status.PAUSED
        await run.cancel()
        await env.settle()
        assert await run.status() is Status.CANCELLED
        assert len(env.started) == 2


async def test_a_run_that_is_cancelled_while_it_is_about_to_pause_unwinds() -> None:
    async with Environment([cleans_up]) as env:
        run = await env.start(cleans_up)
        await env.settle()
        await asyncio.gather(run.pause(), run.cancel())
        await env.settle()
        assert await run.status() is Status.CANCELLED
