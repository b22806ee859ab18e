"""A cluster that fails over by itself: workers and clients go on, and nothing is lost or repeated.

The cluster has the settings that docs/postgres.md shows.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from holdfast.store import upgrade
from tests.crash.agent import client
from tests.crash.fleet import SECONDS_MAX, Fleet, Observer
from tests.crash.postgres.load import Audit, Load
from tests.crash.postgres.patroni import patroni_cluster

EFFECTS = 500
LEASE = 6.0


async def more_effects(observer: Observer) -> None:
    wanted = len(observer.effects) + EFFECTS
    await observer.until(lambda: len(observer.effects) >= wanted, f"{EFFECTS} effects")


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_patroni_promotes_by_itself_and_nothing_is_lost_or_repeated(
    observer: Observer,
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        cluster = await asyncio.to_thread(stack.enter_context, patroni_cluster())
        await upgrade(cluster.url)
        app = await stack.enter_async_context(client(cluster.url))
        fleet = await stack.enter_async_context(Fleet(cluster.url, observer))
        workers = [await fleet.add(lease=LEASE) for _ in range(2)]
        load = Load(app, observer, seed=0)
        starting = asyncio.create_task(load.keep_up())
        await more_effects(observer)
        three = ["leader", "replica", "sync_standby"]
        roles = await asyncio.to_thread(cluster.until_roles, cluster.members[0], three)
        dead, heir = roles["leader"], roles["sync_standby"]
        await asyncio.to_thread(dead.kill)
        two = ["leader", "sync_standby"]
        roles = await asyncio.to_thread(cluster.until_roles, heir, two)
        assert roles["leader"] is heir, "only a synchronous standby is promoted"
        await more_effects(observer)
        # The old primary comes back as a standby, and the next one may die.
        await asyncio.to_thread(dead.start)
        roles = await asyncio.to_thread(cluster.until_roles, heir, three)
        await more_effects(observer)
        await asyncio.to_thread(heir.kill)
        roles = await asyncio.to_thread(cluster.until_roles, roles["sync_standby"], two)
        await more_effects(observer)
        starting.cancel()
        await asyncio.wait({starting})
        assert starting.cancelled()
        await load.finish(SECONDS_MAX)
        audit = Audit(load, observer)
        assert not await audit.hold(app)
        print(
            f"{len(load.started)} runs, {len(observer.effects)} effects, {audit.repeated} repeated"
        )
        assert {effect.pid for effect in observer.effects} == {worker.pid for worker in workers}
