"""Pools of threads that a workflow's body makes for itself, and closes on the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import holdfast
from holdfast import Retry, Status
from holdfast.testing import Environment, crash_everywhere


@holdfast.step
def note(text: str) -> str:
    return text


@holdfast.step(retry=Retry(attempts=1))
def fails() -> None:
    raise ValueError("no")


def works(number: int) -> None:
    if not number:
        fails()
    for text in "abc":
        note(text)


@holdfast.workflow
async def goes_on_when_a_thread_fails() -> str:
    loop = asyncio.get_running_loop()
    try:
        with ThreadPoolExecutor(3) as pool:
            await asyncio.gather(*(loop.run_in_executor(pool, works, n) for n in range(3)))
    except ValueError:
        return await asyncio.to_thread(note, "failed")
    return "?"


async def test_a_body_goes_on_whose_threads_are_in_steps_when_it_closes_their_pool() -> None:
    assert (await crash_everywhere(goes_on_when_a_thread_fails)).result == "failed"


@holdfast.workflow
async def waits_in_a_pool() -> None:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        await loop.run_in_executor(pool, lambda: holdfast.promise("answer").result())


async def test_a_run_is_cancelled_whose_threads_wait_when_it_closes_their_pool() -> None:
    async with Environment([waits_in_a_pool]) as env:
        run = await env.start(waits_in_a_pool)
        await env.settle()
        await run.cancel()
        await env.settle()
        assert await run.status() is Status.CANCELLED


async def test_whoever_closes_a_pool_outside_of_the_run_waits_for_its_threads() -> None:
    waited: list[bool] = []

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            waited.append(wait)
            super().shutdown(wait, cancel_futures=cancel_futures)

    pool = Pool(1)

    @holdfast.workflow
    async def borrows_a_pool(closes: bool) -> None:
        await asyncio.get_running_loop().run_in_executor(pool, int)
        if closes:
            pool.shutdown()

    async with Environment([borrows_a_pool]) as env:
        await env.result(await env.start(borrows_a_pool, False))
        pool.shutdown()
        pool = Pool(1)
        await env.result(await env.start(borrows_a_pool, True))
    assert waited == [True, False]
