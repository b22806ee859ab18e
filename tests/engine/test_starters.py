"""A run that was accepted is executed, whatever becomes of whoever started it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import holdfast
from holdfast.testing import Environment
from holdfast.testing.kept_store import KeptStore


@holdfast.step
async def quick(number: int) -> int:
    return number


@holdfast.workflow
async def short(number: int) -> int:
    return await quick(number)


@holdfast.workflow
async def leaves_a_child_behind(number: int) -> str:
    await holdfast.race(child=holdfast.child(short, number), step=quick(number))
    return "done"


class SlowSession(KeptStore):
    """Takes a few turns of the loop to read a session, as a database does."""

    async def session_messages(self, session: str, *, after: int = 0) -> list[tuple[int, bytes]]:
        for _ in range(20):
            await asyncio.sleep(0)
        return await self._kept.session_messages(session, after=after)


async def test_a_child_that_lost_a_race_while_its_session_was_read_ends() -> None:
    store = SlowSession()
    async with Environment([leaves_a_child_behind, short], store=store) as env:
        in_session = env.app.with_options(session="s")
        for number in range(5):
            assert await env.result(await in_session.start(leaves_a_child_behind, number)) == "done"
        await env.settle()
        runs = await env.app.list(holdfast.RunFilter())
        assert {run.status for run in runs} == {holdfast.Status.COMPLETED}
    await store.discard()


@pytest.mark.parametrize("session", [None, "s"])
@pytest.mark.parametrize("turns", range(0, 12, 2))
async def test_a_run_whose_starter_is_cancelled_is_executed_or_was_never_accepted(
    session: str | None, turns: int
) -> None:
    store = SlowSession()
    async with Environment([short], store=store) as env:
        app = env.app.with_options(id="run", session=session)
        starting = asyncio.create_task(app.start(short, 7))
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        await env.settle()
        row = await store.get("run")
        assert row is None or row.status is holdfast.Status.COMPLETED
    await store.discard()
