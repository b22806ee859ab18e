"""A run that gave its session to others while it waited sees what they wrote, the same on every
replay."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import holdfast
from holdfast import WorkerOptions
from holdfast.testing import Environment

DAY = timedelta(days=1)
LEAVES_AT_ONCE = WorkerOptions(memory_wait=timedelta(0))


@holdfast.step
async def think() -> None:
    return


@holdfast.workflow
async def adds(name: str) -> None:
    session = holdfast.session()
    session.set("n", session.get("n", 0) + 1)
    session.append(name)
    session.delete("first")


@holdfast.workflow
async def waits_in_between() -> tuple[int, list[Any], list[str]]:
    session = holdfast.session()
    session.set("first", True)
    session.set("n", session.get("n", 0) + 1)
    session.append("before")
    await holdfast.sleep(DAY)
    session.set("n", session.get("n") + 1)
    session.append("after")
    seen = session.get("n"), session.messages, session.keys()
    await holdfast.promise("go", str)
    assert seen == (session.get("n"), session.messages, session.keys())
    await think()
    return seen


async def test_a_fork_of_a_run_that_releases_its_session_releases_it_too() -> None:
    async with Environment([waits_in_between, adds], worker_options=LEAVES_AT_ONCE) as env:
        app = env.app.with_options(session="s", while_waiting="release")
        run = await app.start(waits_in_between)
        await env.advance(DAY)
        await run.fork(before="/sleep#0")
        await env.settle()
        await (await app.start(adds, "b")).result()


async def test_a_run_that_released_its_session_sees_what_others_wrote_meanwhile() -> None:
    async with Environment([waits_in_between, adds], worker_options=LEAVES_AT_ONCE) as env:
        app = env.app.with_options(session="s", while_waiting="release")
        run = await app.start(waits_in_between)
        await env.settle()
        for name in "bc":
            await (await app.start(adds, name)).result()
        await env.advance(DAY)
        await env.crash()  # the body makes its second half again, from the journal
        await env.settle()
        await run.resolve("go", "on")
        seen = (4, ["before", "b", "c", "after"], ["n"])
        assert await env.result(run) == seen
        assert await env.store.session_state("s") == {"n": b"4"}
        assert len(await env.store.session_messages("s")) == 4


async def test_what_others_wrote_is_seen_from_the_first_completion_on_and_not_before() -> None:
    @holdfast.workflow
    async def looks_around() -> list[Any]:
        seen = [holdfast.session().get("n")]
        await holdfast.promise("go", str)
        seen.append(holdfast.session().get("n"))
        await think()
        seen.append(holdfast.session().get("n"))
        await holdfast.promise("on", str)
        return [*seen, holdfast.session().get("n")]

    async with Environment([looks_around, adds], worker_options=LEAVES_AT_ONCE) as env:
        app = env.app.with_options(session="s", while_waiting="release")
        run = await app.start(looks_around)
        await env.settle()
        await (await app.start(adds, "a")).result()
        await env.crash()
        await env.settle()
        await run.resolve("go", "")
        await env.settle()
        await (await app.start(adds, "b")).result()
        await run.resolve("on", "")
        assert await env.result(run) == [None, 1, 1, 2]


async def test_a_step_sees_what_others_wrote_after_its_own_wait_and_not_before() -> None:
    @holdfast.step
    async def waits() -> tuple[int, int]:
        before = holdfast.session().get("n")
        await holdfast.promise("go", str)
        return before, holdfast.session().get("n")

    @holdfast.workflow
    async def lets_a_step_wait() -> tuple[int, int]:
        holdfast.session().set("n", 10)
        return await waits()

    async with Environment([lets_a_step_wait, adds], worker_options=LEAVES_AT_ONCE) as env:
        app = env.app.with_options(session="s", while_waiting="release")
        run = await app.start(lets_a_step_wait)
        await env.settle()
        await (await app.start(adds, "b")).result()
        await run.resolve("go", "")
        assert await env.result(run) == (10, 11)


async def test_a_run_that_stashed_before_it_asked_again_sees_what_others_wrote_meanwhile() -> None:
    @holdfast.workflow
    async def goes_on_from_its_stash() -> tuple[int, list[Any]]:
        if holdfast.recovered(bool) is None:
            holdfast.session().set("n", 1)
            holdfast.stash(True)
        await holdfast.sleep(DAY)
        await think()
        session = holdfast.session()
        session.set("n", session.get("n") + 1)
        return session.get("n"), session.messages

    async with Environment([goes_on_from_its_stash, adds], worker_options=LEAVES_AT_ONCE) as env:
        app = env.app.with_options(session="s", while_waiting="release")
        run = await app.start(goes_on_from_its_stash)
        await env.settle()
        await (await app.start(adds, "b")).result()
        assert await env.result(run) == (3, ["b"])


async def test_a_run_that_was_alone_notes_nothing_more_when_it_comes_back() -> None:
    async with Environment([waits_in_between, adds], worker_options=LEAVES_AT_ONCE) as env:
        app = env.app.with_options(session="s", while_waiting="release")
        run = await app.start(waits_in_between)
        await env.settle()
        await env.advance(DAY)
        await env.settle()
        await run.resolve("go", "on")
        assert await env.result(run) == (2, ["before", "after"], ["first", "n"])
        notes = [e.key for e in await run.history() if e.key.startswith("/session")]
        assert len([key for key in notes if "write" not in key]) == 1
