"""Everything at once, in an order that a seed decides: nothing accepted is lost or doubled, nothing
recorded is done again.

    HOLDFAST_CHAOS_SEED=7 pytest tests/crash/postgres/test_chaos.py [-m full]

Neither the moments nor the load repeat exactly: a seed gives the order of what happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest

from holdfast.store import upgrade
from tests.crash.agent import client
from tests.crash.fleet import SECONDS_MAX, Observer
from tests.crash.postgres.chaos import Chaos, Member, pair_of_servers
from tests.crash.postgres.load import Audit, Load

GIVEN = os.environ.get("HOLDFAST_CHAOS_SEED")


async def survive(observer: Observer, *, seed: int, rounds: int, workers: int) -> None:
    print(f"to have this again: HOLDFAST_CHAOS_SEED={seed}")
    async with contextlib.AsyncExitStack() as stack:
        pair = await asyncio.to_thread(stack.enter_context, pair_of_servers())
        shared = pair.door()
        await upgrade(shared.url)
        app = await stack.enter_async_context(client(shared.url))
        # Each second worker has a way of its own to the servers, which can be disturbed alone.
        doors = [pair.door() if number % 2 else shared for number in range(workers)]
        members = [Member(f"worker {n}", door, observer) for n, door in enumerate(doors)]
        for member in members:
            await stack.enter_async_context(member.fleet)
        await asyncio.gather(*(member.start() for member in members))
        load = Load(app, observer, seed)
        chaos = Chaos(pair, members, app, shared, observer, load, seed)
        starting = asyncio.create_task(load.keep_up())
        await chaos.run(rounds)
        starting.cancel()
        await asyncio.wait({starting})
        assert starting.cancelled()
        await chaos.heal()
        await load.finish(SECONDS_MAX)
        audit = Audit(load, observer, chaos.stops, chaos.cuts)
        complaints = await audit.hold(app)
        print(
            f"seed {seed}: {len(load.started)} runs, {len(observer.effects)} effects, "
            f"{audit.repeated} of them repeated before they were recorded, {audit.excused} by a "
            f"process that was stopped or cut off right then; {dict(chaos.done)}"
        )
        assert not complaints, "\n".join([f"HOLDFAST_CHAOS_SEED={seed}", *complaints])


@pytest.mark.timeout(1200)
async def test_chaos_loses_nothing_and_repeats_nothing_recorded(observer: Observer) -> None:
    await survive(observer, seed=int(GIVEN or 1), rounds=10, workers=4)  # each kind once


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [int(GIVEN)] if GIVEN else range(10))
async def test_more_chaos(seed: int, observer: Observer) -> None:
    await survive(observer, seed=seed, rounds=40, workers=4)
