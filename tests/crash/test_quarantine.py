"""A run that kills its worker each time is stopped in the end, and takes no other run with it."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast.errors import RunHalted
from holdfast.types import Status
from tests.crash.agent import line, poison
from tests.crash.fleet import SECONDS_MAX, Fleet, Observer


async def replace_the_dead(fleet: Fleet) -> None:
    """Keeps one worker alive, as a supervisor would."""
    while True:
        await fleet.begin().ended()  # it may be dead before it says anything


async def test_a_poison_run_is_quarantined_and_all_others_complete(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    names = ["one", "two", "three"]
    innocents = [await app.start(line, names) for _ in range(10)]
    bad = await app.start(poison, "poison")
    innocents += [await app.start(line, names) for _ in range(10)]
    supervisor = asyncio.create_task(replace_the_dead(fleet))
    try:
        async with asyncio.timeout(SECONDS_MAX):
            with pytest.raises(RunHalted, match=r"quarantined: its worker died 5 times"):
                await bad.result()
            for run in innocents:
                assert len(await run.result()) == 3
        row = await app.row(bad.id)
        assert row.status is Status.QUARANTINED
        assert row.reason is not None and "resume" in row.reason
        assert bad.id in await bad.why()
        # Somebody removed the cause: it goes on.
        observer.holds = lambda effect: True
        tries = observer.names().count("poison")
        await bad.resume()
        (await observer.sees("poison", count=tries + 1)).let_go("live")
        await bad.result()
    finally:
        supervisor.cancel()
        await asyncio.wait([supervisor])
