"""Waiting for a result on a store that takes its time: no end is missed, nothing is left behind."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast import Run, StoreUnavailable
from holdfast.client.results import Results
from holdfast.testing import Environment
from holdfast.testing.kept_store import KeptStore
from holdfast.types import RunId, RunRow

SECONDS_MAX = 120


@holdfast.workflow
async def asks() -> str:
    return await holdfast.receive(str)


class Held(KeptStore):
    """A store whose `get` is held up before or after it has read, as a slow connection would."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.errors: list[Exception] = []

    async def get(self, run: RunId) -> RunRow | None:
        found = await self._kept.get(run)
        self.asked.set()
        await self.go_on.wait()
        if self.errors:
            raise self.errors.pop()
        return found


class Waiter:
    """Somebody whose `get` has read the row and has not returned yet."""

    def __init__(self, env: Environment, run: Run[str]) -> None:
        assert isinstance(env.store, Held)
        self.store = env.store
        self.store.asked.clear()
        self.store.go_on.clear()
        self.task = asyncio.create_task(run.result())

    async def has_asked(self) -> None:
        await asyncio.wait_for(self.store.asked.wait(), SECONDS_MAX)

    async def result(self) -> str:
        self.store.go_on.set()
        return await asyncio.wait_for(self.task, SECONDS_MAX)


def results_of(env: Environment) -> Results:
    results = env.app._parts.results
    assert results is not None
    return results


async def test_an_end_that_comes_while_the_run_is_looked_up_is_not_missed() -> None:
    store = Held()
    async with Environment([asks], store=store) as env:
        run = await env.start(asks)
        await env.settle()
        results = results_of(env)
        waiter = Waiter(env, run)
        await waiter.has_asked()
        told = asyncio.Event()

        def settled(row: RunRow) -> None:
            results.settled_here(row)
            told.set()

        env.worker.on_settled = settled
        await run.send("hello")
        await asyncio.wait_for(told.wait(), SECONDS_MAX)
        assert await waiter.result() == "hello"
        assert results._waiting == {}
    await store.discard()


async def test_a_look_that_fails_concerns_nobody_else_and_leaves_nothing_behind() -> None:
    store = Held()
    async with Environment([asks], store=store) as env:
        run = await env.start(asks)
        await env.settle()
        unlucky = Waiter(env, run)
        await unlucky.has_asked()
        store.errors.append(StoreUnavailable("for a moment"))
        with pytest.raises(StoreUnavailable):
            await unlucky.result()
        assert results_of(env)._waiting == {}
        other = asyncio.create_task(run.result())
        await run.send("hello")
        assert await asyncio.wait_for(other, SECONDS_MAX) == "hello"
    await store.discard()


async def test_who_gives_up_takes_nobody_along_and_leaves_nothing_behind() -> None:
    store = Held()
    async with Environment([asks], store=store) as env:
        run = await env.start(asks)
        await env.settle()
        first = Waiter(env, run)
        await first.has_asked()
        second = asyncio.create_task(run.result())
        first.task.cancel()
        await asyncio.wait([first.task])
        store.go_on.set()
        await run.send("hello")
        assert await asyncio.wait_for(second, SECONDS_MAX) == "hello"
        assert results_of(env)._waiting == {}
    await store.discard()


async def test_a_wait_that_is_given_up_is_forgotten() -> None:
    async with Environment([asks]) as env:
        run = await env.start(asks)
        await env.settle()
        waiter = asyncio.create_task(run.result())
        await env.settle()
        assert len(results_of(env)._waiting) == 1
        waiter.cancel()
        await asyncio.wait([waiter])
        assert results_of(env)._waiting == {}


async def test_two_who_ask_for_a_run_that_does_not_exist_are_both_told_so() -> None:
    store = Held()
    async with Environment([asks], store=store) as env:
        first = Waiter(env, env.app.get("nobody"))
        await first.has_asked()
        second = asyncio.create_task(env.app.get("nobody").result())
        await asyncio.sleep(0)
        for asking in (first.result(), second):
            with pytest.raises(holdfast.UnknownRun):
                await asking
        assert results_of(env)._waiting == {}
    await store.discard()


async def test_an_app_that_closes_tells_who_is_still_looking() -> None:
    store = Held()
    env = Environment([asks], store=store)
    async with env:
        run = await env.start(asks)
        await env.settle()
        results = results_of(env)
        waiter = Waiter(env, run)
        await waiter.has_asked()
    with pytest.raises(holdfast.NotOpen, match="closed while a result was awaited"):
        await waiter.result()
    assert results._waiting == {} and results._task is None
    await store.discard()
