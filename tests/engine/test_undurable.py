"""Runs with durability="none": they have an id, but no session, and no journal to ask about."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import holdfast
from holdfast.testing import Environment


@holdfast.workflow
async def works(value: int) -> int:
    if value > 1:
        raise ValueError("too much")
    return value


@holdfast.workflow
async def asks() -> str:
    return await holdfast.promise("ok", str)


async def test_it_has_an_id_of_its_own_or_the_one_it_was_given() -> None:
    async with Environment([works]) as env:
        app = env.app.with_options(durability="none")
        first, second = await app.start(works, 0), await app.start(works, 2)
        assert first.id and second.id and first.id != second.id
        with pytest.raises(holdfast.RunFailed, match=second.id):
            await second.result()
        assert (await app.with_options(id="mine").start(works, 0)).id == "mine"


async def test_a_session_is_refused_wherever_the_two_options_meet() -> None:
    async with Environment([works]) as env:
        quick = works.with_options(durability="none")
        with pytest.raises(holdfast.BadArguments, match="durability='none' has no session"):
            quick.with_options(session="s")
        with pytest.raises(holdfast.BadArguments, match="durability='none' has no session"):
            await env.app.with_options(session="s").start(quick, 1)
        assert await env.app.list() == []


async def test_only_its_result_can_be_asked_for() -> None:
    async with Environment([asks]) as env:
        run = await env.app.with_options(durability="none").start(asks)
        calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
            run.status,
            run.history,
            run.why,
            run.cancel,
            run.pause,
            run.resume,
            run.rerun,
            lambda: run.resolve("ok", "yes"),
            lambda: run.send("hello"),
            lambda: run.fork(before="/promise:ok#0"),
        ]
        for call in calls:
            with pytest.raises(holdfast.NoJournal, match=f"{run.id}.* has no journal"):
                await call()
