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
