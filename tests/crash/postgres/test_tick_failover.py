"""A database that fails over while ticks are made loses none of them and doubles none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast.store import upgrade
from holdfast.testing.postgres import PostgresServer
from tests.crash import backlog
from tests.crash.agent import client
from tests.crash.fleet import Fleet, Observer
from tests.crash.trap import TICK_GATE

TICKS = 500
LEASE = 6.0
"""After a failover, everybody is given one lease to come back."""


@pytest.fixture
async def pair() -> AsyncIterator[tuple[PostgresServer, PostgresServer]]:
    with PostgresServer() as primary:
        await upgrade(primary.dsn)
        yield primary, await asyncio.to_thread(primary.standby)


@pytest.fixture
def url(pair: tuple[PostgresServer, PostgresServer]) -> str:
    """One address for both."""
    parts = urlsplit(pair[0].dsn)
    hosts = ",".join(f"127.0.0.1:{urlsplit(server.dsn).port}" for server in pair)
    return f"postgresql://{parts.username}:{parts.password}@{hosts}{parts.path}"


@pytest.fixture
async def app(url: str) -> AsyncIterator[holdfast.Holdfast]:
    async with client(url) as made:
        yield made


async def test_a_failover_in_the_middle_loses_no_tick_and_doubles_none(
    pair: tuple[PostgresServer, PostgresServer],
    app: holdfast.Holdfast,
    fleet: Fleet,
    observer: Observer,
) -> None:
    primary, standby = pair
    # However long the kill takes, they do not get through with it before.
    observer.holds = lambda effect: effect.name == TICK_GATE
    await fleet.add(lease=LEASE, tick_gate=TICKS // 4)
    victim = await fleet.add(lease=LEASE, tick_gate=TICKS // 4)
    first = await backlog.declare(app, TICKS)
    await observer.sees("tick")
    await asyncio.to_thread(primary.kill)
    behind = (
        "SELECT count(*) FROM holdfast.schedules WHERE next_at < extract(epoch FROM now()) * 1e6"
    )
    assert await asyncio.to_thread(standby.sql, behind) == [["1"]], "it died in the middle"
    observer.let_all_go()
    await victim.kill()
    await asyncio.to_thread(standby.promote)
    await fleet.add(lease=LEASE)
    await backlog.audit(app, fleet, observer, first, TICKS)
