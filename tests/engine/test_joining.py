"""Starts that join a run of their session, which may end without receiving them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Status, WorkerOptions
from holdfast.testing import Environment

LEAVES_AT_ONCE = WorkerOptions(memory_wait=timedelta(0))


@holdfast.workflow
async def answers(text: str) -> list[str]:
    """Hears one more message, if it comes in time."""
    name, more = await holdfast.race(more=holdfast.receive(), late=timedelta(hours=1))
    return [text, more["text"]] if name == "more" else [text]


@holdfast.workflow
async def waits_to_be_asked(text: str) -> str:
    return await holdfast.promise("answer", str)


async def test_what_joined_a_run_in_vain_is_a_run_of_its_own() -> None:
    async with Environment([waits_to_be_asked, answers], worker_options=LEAVES_AT_ONCE) as env:
        app = env.app.with_options(session="s", on_busy="join")
        first = await app.start(waits_to_be_asked, "one")
        joined = app.with_options(id="message", fairness_key="tenant")
        assert (await joined.start(answers, "two")).id == first.id
        await env.crash()
        await first.resolve("answer", "done")
        assert await env.result(first) == "done"
        again = await joined.start(answers, "two")
        assert again.id == "message"
        assert await env.result(again) == ["two"]


async def test_all_that_joined_a_run_in_vain_is_heard_in_order() -> None:
    async with Environment([waits_to_be_asked, answers], worker_options=LEAVES_AT_ONCE) as env:
        app = env.app.with_options(session="s", on_busy="join")
        first = await app.start(waits_to_be_asked, "one")
        for id in ("two", "three", "four"):
            await app.with_options(id=id).start(answers, id)
        await first.resolve("answer", "done")
        assert await env.result(env.app.get("two")) == ["two", "three"]
        assert await env.result(env.app.get("four")) == ["four"]
        assert len(await env.app.list()) == 3


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_a_message_outlives_a_run_that_goes_wrong(how: str) -> None:
    @holdfast.workflow
    async def goes_wrong(text: str) -> Any:
        await holdfast.promise("answer", str)
        raise ValueError("no")

    async with Environment([goes_wrong, answers], worker_options=LEAVES_AT_ONCE) as env:
        app = env.app.with_options(session="s", on_busy="join")
        first = await app.start(goes_wrong, "one")
        await app.with_options(id="two").start(answers, "two")
        await env.settle()
        await (first.cancel() if how == "cancelled" else first.resolve("answer", "yes"))
        await env.settle()
        assert await first.status() is Status(how)
        assert await env.result(env.app.get("two")) == ["two"]
