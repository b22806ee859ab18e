"""Servers that go away and networks that go silent: the living go on, the dead are noticed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast.store import upgrade
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.proxy import Proxy
from holdfast.types import Kind
from tests.crash.agent import client, late, line
from tests.crash.fleet import Effect, Fleet, Observer, Process
from tests.crash.postgres.other_host import OtherHost

LEASE = 10.0
LEASE_OF_THE_LIVING = 15.0
"""When the server is back, they have one lease to be heard of, and try it three times in that."""
STEPS = ["one", "two", "three"]
Run = holdfast.Run[list[str]]


async def claims(app: holdfast.Holdfast, run: str) -> int:
    return sum(entry.kind is Kind.CLAIM for entry in await app.history(run))


async def one_run_each(
    app: holdfast.Holdfast, observer: Observer, workers: list[Process]
) -> dict[int, tuple[Run, Effect]]:
    """A run that each of these workers executes, held at its second step; by their pids."""
    observer.holds = lambda effect: effect.name == "two"
    found: dict[int, tuple[Run, Effect]] = {}
    for _ in workers:  # each of which has room for one
        run = await app.start(line, STEPS)
        effect = await observer.sees("two", run=run.id)
        found[effect.pid] = run, effect
    assert set(found) == {worker.pid for worker in workers}
    return found


# The server goes away


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    with PostgresServer(fsync=False) as server:
        yield server


@contextlib.asynccontextmanager
async def site(url: str, observer: Observer) -> AsyncIterator[tuple[holdfast.Holdfast, Fleet]]:
    await upgrade(url)
    async with client(url) as app, Fleet(url, observer) as fleet:
        yield app, fleet


async def outlive_the_leases(workers: list[Process]) -> None:
    """Renewals go out three times per lease: after so many in vain, all leases are over."""
    for worker in workers:
        await worker.says("the lease could not be renewed", count=4)


async def test_an_outage_longer_than_the_leases_is_nobodys_death(
    primary: PostgresServer, observer: Observer
) -> None:
    async with site(primary.dsn, observer) as (app, fleet):
        workers = [await fleet.add(lease=LEASE_OF_THE_LIVING, concurrency=1) for _ in range(2)]
        runs = await one_run_each(app, observer, workers)
        before = {row.id for row in await app.workers()}
        await asyncio.to_thread(primary.stop)
        await outlive_the_leases(workers)
        await asyncio.to_thread(primary.start)
        observer.let_all_go()
        for pid, (run, effect) in runs.items():
            tokens = await run.result()
            assert tokens[1] == effect.token, "what was done before the outage counts"
            assert observer.names(run=run.id) == STEPS
            assert observer.names(run=run.id, pid=pid) == STEPS
            assert await claims(app, run.id) == 1
        assert {row.id for row in await app.workers()} == before
        for worker in workers:
            assert not [said for said in worker.said if "is gone" in said]


async def test_after_a_failover_the_living_go_on_and_who_died_in_it_is_noticed(
    primary: PostgresServer, observer: Observer
) -> None:
    standby = await asyncio.to_thread(primary.standby)
    parts = urlsplit(primary.dsn)
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    url = f"postgresql://{parts.username}:{parts.password}@{hosts}{parts.path}"
    async with site(url, observer) as (app, fleet):
        workers = [await fleet.add(lease=LEASE_OF_THE_LIVING, concurrency=1) for _ in range(3)]
        runs = await one_run_each(app, observer, workers)
        *living, dead = workers
        before = {row.id for row in await app.workers() if row.pid != dead.pid}
        await asyncio.to_thread(primary.kill)
        await dead.kill()
        await outlive_the_leases(living)
        await asyncio.to_thread(standby.promote)
        for worker in living:
            runs[worker.pid][1].let_go()
        for worker in living:
            run = runs[worker.pid][0]
            assert len(await run.result()) == 3
            assert observer.names(run=run.id, pid=worker.pid) == STEPS
            assert await claims(app, run.id) == 1
        run, _ = runs[dead.pid]
        again = await observer.sees("two", run=run.id, count=2)
        assert again.pid in {worker.pid for worker in living}
        again.let_go()
        assert (await run.result())[1] == again.token
        assert await claims(app, run.id) == 2
        assert {row.id for row in await app.workers()} == before


# The network goes silent


def go_silent(proxy: Proxy) -> None:
    """All stays open, and nothing comes through: the lease tells."""
    proxy.pause()


def go_away(proxy: Proxy) -> None:
    """Both lifelines are cut, and none comes back: the locks tell."""
    proxy.refuse()
    proxy.cut()


async def is_cut_off_and_comes_back(
    app: holdfast.Holdfast,
    observer: Observer,
    far: Fleet,
    near: Fleet,
    leave: Callable[[], object],
    come_back: Callable[[], object],
    losses: int = 0,
) -> None:
    """losses: how many sessions it hears the end of."""
    observer.holds = lambda effect: effect.name in ("two", "gate")
    cut_off = await far.add(lease=LEASE)
    run = await app.start(line, STEPS)
    beside = await app.start(late, "late")
    held = await observer.sees("two", pid=cut_off.pid)
    gate = await observer.sees("gate", pid=cut_off.pid)
    peer = await near.add()
    leave()
    again = await observer.sees("two", pid=peer.pid)
    if losses:
        await cut_off.says("a session with the store is lost", count=losses)
    # It has run out of its lease, or knows that it may be taken for dead; and asks for a step
    # before which nothing is to be written.
    gate.let_go()
    await observer.sees("asked for", pid=cut_off.pid)
    # And a step of it ends; what it wants to write is refused when it is heard of again.
    held.let_go()
    come_back()
    await cut_off.says("lost its lease")
    observer.let_all_go()
    tokens = await run.result()
    assert tokens[1] == again.token
    await beside.result()
    assert observer.names(pid=cut_off.pid, run=run.id) == ["one", "two"]
    assert observer.names(pid=peer.pid, run=run.id) == ["two", "three"]
    assert observer.names(pid=cut_off.pid, run=beside.id) == ["gate", "asked for"]
    assert await claims(app, run.id) == await claims(app, beside.id) == 2


@pytest.mark.parametrize(("leave", "losses"), [(go_silent, 0), (go_away, 2)])
async def test_a_worker_cut_off_from_the_server_starts_nothing_more_and_its_run_goes_on(
    leave: Callable[[Proxy], object],
    losses: int,
    postgres: PostgresServer,
    url: str,
    app: holdfast.Holdfast,
    fleet: Fleet,
    observer: Observer,
) -> None:
    with Proxy(postgres.port) as proxy:
        behind = url.replace(f":{postgres.port}/", f":{proxy.port}/")
        async with Fleet(behind, observer) as far:
            await is_cut_off_and_comes_back(
                app, observer, far, fleet, lambda: leave(proxy), proxy.resume, losses
            )


@pytest.mark.full
async def test_so_does_a_worker_on_another_host_whose_cable_is_pulled(observer: Observer) -> None:
    with OtherHost() as other:
        listening = {"listen_addresses": f"127.0.0.1,{other.our_address}"}
        with PostgresServer(fsync=False, settings=listening) as server:
            other.let_in(server)
            theirs = server.dsn.replace("@127.0.0.1:", f"@{other.our_address}:")
            async with site(server.dsn, observer) as (app, near):
                async with Fleet(theirs, observer, other.command) as far:
                    await is_cut_off_and_comes_back(
                        app, observer, far, near, other.pull_the_cable, other.plug_it_in
                    )
