"""Children in the session of the run that awaits them: one after the other, and beside it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import holdfast
from holdfast.testing import Environment, crash_everywhere

DAY = timedelta(days=1)


@holdfast.step
async def think(about: str) -> str:
    return about


@holdfast.workflow
async def adds(name: str) -> tuple[int, list[Any]]:
    """Gives what it found."""
    session = holdfast.session()
    found = session.get("n", 0), session.messages
    session.set("n", found[0] + 1)
    session.append(name)
    await think(name)
    return found


@holdfast.workflow
async def awaits_one_after_the_other() -> list[tuple[int, list[Any]]]:
    session = holdfast.session()
    seen = [await holdfast.child(adds, "first")]
    seen.append((session.get("n"), session.messages))
    session.append("parent")
    seen.append(await holdfast.child(adds, "second"))
    seen.append((session.get("n"), session.messages))
    return seen


IN_TURN = [
    (0, []),
    (1, ["first"]),
    (1, ["first", "parent"]),
    (2, ["first", "parent", "second"]),
]


async def test_children_in_sequence_see_what_those_before_them_wrote_and_the_parent_sees_all() -> (
    None
):
    async with Environment([awaits_one_after_the_other, adds]) as env:
        run = await env.app.with_options(session="s").start(awaits_one_after_the_other)
        assert await env.result(run) == IN_TURN
        assert await env.store.session_state("s") == {"n": b"2"}


async def test_so_they_do_wherever_a_crash_comes() -> None:
    workflow = awaits_one_after_the_other.with_options(session="s")
    assert (await crash_everywhere(workflow, workflows=[adds])).result == IN_TURN


async def test_children_awaited_at_once_lose_no_message_and_the_parent_sees_all_of_them() -> None:
    @holdfast.workflow
    async def awaits_both() -> tuple[int, list[Any]]:
        await asyncio.gather(holdfast.child(adds, "one"), holdfast.child(adds, "other"))
        return holdfast.session().get("n"), sorted(holdfast.session().messages)

    async with Environment([awaits_both, adds]) as env:
        run = await env.app.with_options(session="s").start(awaits_both)
        number, messages = await env.result(run)
        assert messages == ["one", "other"]
        assert number in (1, 2), "each set what it made of what it had found"


async def test_the_next_run_of_the_session_waits_for_a_child_that_its_parent_left_behind() -> None:
    @holdfast.workflow
    async def adds_late() -> None:
        await holdfast.sleep(2 * DAY)
        holdfast.session().append("late")

    @holdfast.workflow
    async def loses_patience() -> str:
        name, _ = await holdfast.race(child=holdfast.child(adds_late), late=DAY)
        holdfast.session().append("parent")
        return name

    async with Environment([loses_patience, adds_late, adds]) as env:
        app = env.app.with_options(session="s")
        run = await app.start(loses_patience)
        await env.settle()
        after = await app.start(adds, "after")
        assert await env.result(run) == "late"
        assert await env.result(after) == (0, ["parent", "late"])


@holdfast.workflow
async def asks_the_other(other: str) -> str:
    await think("first")
    await holdfast.promise("go", str)
    return await holdfast.child(answers_in.with_options(session=other, id=f"in {other}"))


@holdfast.workflow
async def answers_in() -> str:
    return await think("an answer")


async def both_ask(env: Environment, **options: Any) -> tuple[holdfast.Run[str], ...]:
    app = env.app.with_options(**options)
    one = await app.with_options(id="one", session="s1").start(asks_the_other, "s2")
    two = await app.with_options(id="two", session="s2").start(asks_the_other, "s1")
    await env.settle()
    for run in (one, two):  # they have their sessions by now
        await run.resolve("go", "yes")
    await env.settle()
    return one, two


async def test_why_says_that_runs_wait_for_one_another_and_which_to_cancel() -> None:
    async with Environment([asks_the_other, answers_in]) as env:
        one, two = await both_ask(env)
        for run in (one, two, env.app.get("in s1"), env.app.get("in s2")):
            why = await run.why()
            assert "It is in a deadlock" in why and "None of them goes on by itself." in why
            assert "one awaits its child in s2" in why
            assert "in s2 waits behind two in session 's2'" in why
            assert "two awaits its child in s1" in why
        assert "`holdfast cancel 'in s2'`" in await one.why()
        await env.app.cancel("in s2")
        assert await env.result(two) == "an answer"
        assert await one.status() is holdfast.Status.FAILED
        assert "deadlock" not in await one.why()


async def test_runs_that_release_their_sessions_do_not_wait_for_one_another() -> None:
    async with Environment([asks_the_other, answers_in]) as env:
        one, two = await both_ask(env, while_waiting="release")
        assert await env.result(one) == await env.result(two) == "an answer"


async def test_a_timer_ends_a_deadlock_and_why_knows() -> None:
    @holdfast.workflow
    async def asks_for_a_day() -> str:
        await holdfast.promise("go", str)
        child = holdfast.child(answers_in.with_options(session="s2", id="in s2"))
        await holdfast.race(answer=child, late=DAY)
        return await holdfast.promise("end", str)

    async with Environment([asks_for_a_day, asks_the_other, answers_in]) as env:
        one = await env.app.with_options(id="one", session="s1").start(asks_for_a_day)
        two = await env.app.with_options(id="two", session="s2").start(asks_the_other, "s1")
        await env.settle()
        for run in (one, two):
            await run.resolve("go", "yes")
        await env.settle()
        for run in (one, two):
            assert "None of them goes on before" in await run.why()
        await env.advance(DAY)
        assert "deadlock" not in await one.why()
        await one.resolve("end", "yes")
        assert await env.result(two) == "an answer"
