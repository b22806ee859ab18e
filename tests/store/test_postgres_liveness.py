"""Who is taken for dead on PostgreSQL, by what, and who is not: real processes, a real server.

Leases last for an hour unless a test is about them: what is noticed here, a lock has told.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import partial

import pytest

pytest.register_assert_rewrite("holdfast.testing")

from holdfast.store import upgrade  # noqa: E402
from holdfast.testing.conformance.given import NOW, row, started_and_claimed  # noqa: E402
from holdfast.testing.postgres import PostgresServer  # noqa: E402
from holdfast.testing.proxy import Proxy  # noqa: E402
from holdfast.types import WorkerRow  # noqa: E402
from tests.store.locks import Locks, come_back, locks, until  # noqa: E402
from tests.store.peer import Peer, through, watched_by  # noqa: E402
from tests.store.spawning import Spawn, come, line, only_worker, spawning, tell  # noqa: E402


@pytest.fixture
async def url(postgres_url: str) -> str:
    await upgrade(postgres_url)
    return postgres_url


@pytest.fixture
async def seen(url: str) -> AsyncIterator[Locks]:
    async with locks(url) as made:
        yield made


@pytest.fixture
def spawn(url: str) -> Iterator[Spawn]:
    with spawning(url) as run:
        yield run


@pytest.fixture
async def peer(url: str) -> AsyncIterator[Peer]:
    async with Peer(url, "peer") as made:
        yield made


class TestDeath:
    async def test_a_killed_worker_is_told_by_the_server_long_before_its_lease_ends(
        self, peer: Peer, seen: Locks, spawn: Spawn
    ) -> None:
        child = spawn("live", "w1")
        line(child)
        await watched_by(peer, seen, "w1")
        assert peer.gone == set()
        child.kill()
        await come(peer.told["w1"])
        (found,) = [row for row in await peer.store.workers() if row.id == "w1"]
        assert found.lease_left_seconds > 3000
        assert await seen.holders("w1") == []
        reaped = await peer.store.reap("w1", NOW)
        assert reaped is not None and reaped.runs == ["run of w1"]

    async def test_a_forked_child_that_lives_on_does_not_keep_it_alive(
        self, peer: Peer, seen: Locks, spawn: Spawn
    ) -> None:
        child = spawn("live_with_children", "w1")
        survivors = [int(pid) for pid in line(child)]
        await watched_by(peer, seen, "w1")
        try:
            child.kill()
            await come(peer.told["w1"])
            for pid in survivors:
                os.kill(pid, 0)
            assert await seen.holders("w1") == []
        finally:
            for pid in survivors:
                os.kill(pid, signal.SIGKILL)

    async def test_nor_does_one_that_was_forked_while_the_worker_connected(
        self, url: str, postgres: PostgresServer, peer: Peer, seen: Locks
    ) -> None:
        with Proxy(postgres.port) as proxy, spawning(through(proxy, postgres, url)) as spawn:
            child = spawn("fork_while_registering", "w1")
            assert line(child) == ["open"]
            proxy.pause()
            before = proxy.connections

            async def connecting() -> bool:
                return proxy.connections >= before + 2

            tell(child)
            await until(connecting, "it opens both sessions")
            tell(child)
            (survivor,) = line(child)
            try:
                proxy.resume()
                assert line(child) == ["registered"]
                await watched_by(peer, seen, "w1")
                child.kill()
                await come(peer.told["w1"])
            finally:
                os.kill(int(survivor), signal.SIGKILL)

    async def test_a_watcher_that_is_stopped_hides_nobodys_death(
        self, peer: Peer, seen: Locks, spawn: Spawn
    ) -> None:
        """What it was granted while it could not look at it must not look like a life."""
        watcher, victim = spawn("live_in_a_ring", "v"), spawn("live", "w1")
        for child in (watcher, victim):
            line(child)
        tell(watcher)
        assert line(watcher) == ["watching"]
        await until(lambda: seen.watchers("w1"), "v waits for a lock of w1")
        os.kill(watcher.pid, signal.SIGSTOP)
        await asyncio.to_thread(os.waitpid, watcher.pid, os.WUNTRACED)
        victim.kill()
        victim.wait()
        (found,) = [row for row in await peer.store.workers() if row.id == "w1"]

        async def dead() -> bool:
            return await peer.store.is_dead(found)

        await until(dead, "w1 is known to be dead")


class TestRing:
    @pytest.mark.parametrize("size", [2, 3])
    async def test_workers_that_watch_each_other_do_not_deadlock(
        self, size: int, postgres: PostgresServer
    ) -> None:
        # Deadlocks are looked for at once, so that none is missed by waiting too short.
        url = postgres.create_database(f"ring_of_{size}")
        await asyncio.to_thread(
            postgres.sql, f"ALTER DATABASE ring_of_{size} SET deadlock_timeout = '1ms'"
        )
        await upgrade(url)
        before = len(postgres.log)  # which other tests write to, too
        async with AsyncExitStack() as stack:
            seen = await stack.enter_async_context(locks(url))
            peers = [await stack.enter_async_context(Peer(url, f"w{n}")) for n in range(size)]
            for each in peers:
                await each.watch_all()
            for each in peers:
                await until(partial(self.by_one, seen, each.name), f"{each.name} is watched by one")
            assert [each.gone for each in peers] == [set()] * size
            assert all(each.keeper.is_alive() for each in peers)
            said = await asyncio.to_thread(lambda: postgres.log[before:])
            assert "deadlock detected" not in said

    async def by_one(self, seen: Locks, name: str) -> bool:
        """A watch is taken up anew now and then, or passed on when others are known."""
        return len(await seen.watchers(name)) == 1

    async def test_of_three_two_that_die_at_once_are_both_noticed(
        self, peer: Peer, seen: Locks, spawn: Spawn
    ) -> None:
        children = [spawn("live_in_a_ring", name) for name in ("w1", "w2")]
        for child in children:
            assert line(child) == ["registered"]
        for child in children:
            tell(child)
            assert line(child) == ["watching"]
        await peer.watch_all()
        for name in ("w1", "w2", "peer"):
            await until(partial(seen.watchers, name), f"{name} is watched")
        for child in children:
            child.kill()
        for name in ("w1", "w2"):
            await come(peer.told[name])
        assert {row.id for row in await peer.store.workers()} == {"w1", "w2", "peer"}
        for name in ("w1", "w2"):
            assert await peer.store.reap(name, NOW) is not None


class TestCutConnections:
    @pytest.mark.parametrize("which", [1, 2])
    async def test_one_cut_connection_is_no_death(
        self, which: int, url: str, peer: Peer, seen: Locks
    ) -> None:
        async with Peer(url, "w1") as alive:
            await watched_by(peer, seen, "w1")
            sessions = await seen.holders("w1")
            await seen.cut(sessions[which - 1])
            await seen.held_by_others_than("w1", sessions[which - 1])
            # Whoever waited for the first lock was given it, and waits for the second one now.
            await until(lambda: seen.watchers("w1", 3 - which), "it is watched by the other lock")
            assert peer.gone == set()
            await until(alive.is_alive, "the other session has reassured it")
            assert await alive.renewed()
            (found,) = [row for row in await peer.store.workers() if row.id == "w1"]
            assert not await peer.store.is_dead(found)

    async def test_who_has_lost_both_starts_nothing_until_it_knows_that_nobody_reaped_it(
        self, url: str, seen: Locks
    ) -> None:
        async with Peer(url, "w1") as alive:
            sessions = await seen.holders("w1")
            async with seen.server.transaction():
                # Who asks for it has to wait for us.
                await seen.server.execute(f'SELECT 1 FROM "{seen.schema}".workers FOR UPDATE')
                await seen.cut(*sessions)
                await until(alive.is_not_alive, "it has noticed")
                await seen.held_by_others_than("w1", *sessions)
                assert not await alive.is_alive(), "it has its locks, but may have been reaped"
            await until(alive.is_alive, "it was told by the server")

    async def test_who_has_lost_one_starts_nothing_while_the_other_says_nothing(
        self, seen: Locks, peer: Peer
    ) -> None:
        first, second = await seen.holders(peer.name)
        os.kill(second, signal.SIGSTOP)  # as if it was gone, and nobody had told us yet
        try:
            async with seen.server.transaction():
                await seen.server.execute(f'SELECT 1 FROM "{seen.schema}".workers FOR UPDATE')
                await seen.cut(first)
                await until(peer.is_not_alive, "both may be gone")
        finally:
            os.kill(second, signal.SIGCONT)
        await until(peer.is_alive, "it was told by the server")

    async def test_who_was_reaped_meanwhile_learns_it_when_it_is_back(
        self, url: str, postgres: PostgresServer, peer: Peer, seen: Locks
    ) -> None:
        with Proxy(postgres.port) as proxy:
            async with Peer(through(proxy, postgres, url), "w1") as cut_off:
                await started_and_claimed(peer.store, "run", by="w1")
                await watched_by(peer, seen, "w1")
                sessions = await seen.holders("w1")
                proxy.refuse()
                proxy.cut()
                await come(peer.told["w1"])
                await until(cut_off.is_not_alive, "it has noticed")
                reaped = await peer.store.reap("w1", NOW)
                assert reaped is not None and reaped.runs == ["run"]
                proxy.resume()
                await seen.held_by_others_than("w1", *sessions)
                assert not await cut_off.is_alive()
                assert not await cut_off.heard()
                assert not await cut_off.is_alive()

    async def test_who_was_taken_for_dead_and_is_back_is_not_reaped(
        self, url: str, postgres: PostgresServer, peer: Peer, seen: Locks
    ) -> None:
        """Whoever was told of a death may be stopped for long before it acts."""
        with Proxy(postgres.port) as proxy:
            async with Peer(through(proxy, postgres, url), "w1") as back:
                await started_and_claimed(peer.store, "run", by="w1")
                await watched_by(peer, seen, "w1")
                sessions = await seen.holders("w1")
                proxy.refuse()
                proxy.cut()
                await come(peer.told["w1"])
                proxy.resume()
                await seen.held_by_others_than("w1", *sessions)
                assert await peer.store.reap("w1", NOW) is None
                assert await back.heard() and await peer.ids() == {"w1", "peer"}
                assert (await row(peer.store, "run")).owner == "w1"

    async def test_who_is_just_being_reaped_does_not_come_back(
        self, url: str, postgres: PostgresServer, peer: Peer, seen: Locks
    ) -> None:
        with Proxy(postgres.port) as proxy:
            async with Peer(through(proxy, postgres, url), "w1") as cut_off:
                await watched_by(peer, seen, "w1")
                sessions = await seen.holders("w1")
                proxy.refuse()
                proxy.cut()
                await come(peer.told["w1"])
                async with seen.holder.transaction():
                    reap = f'SELECT id FROM "{seen.schema}".reap($1, $2, false)'
                    assert await seen.holder.fetchval(reap, "w1", NOW) == "w1"
                    proxy.resume()
                    await until(lambda: seen.waiting("w1"), "it wants its locks back")
                    assert await seen.holders("w1") == []
                await seen.held_by_others_than("w1", *sessions)
                assert not await cut_off.heard()


class TestServerLives:
    """A server that starts anew has forgotten all locks; that is nobody's death."""

    @pytest.fixture
    def server(self) -> Iterator[PostgresServer]:
        with PostgresServer(fsync=False) as server:
            yield server

    async def forget(self, seen: Locks, server: PostgresServer, how: str) -> None:
        if how == "restart":
            await asyncio.to_thread(server.restart)
            return
        # When one of its processes is killed, the server cuts off all others and goes on.
        pid = await seen.server.fetchval("SELECT pg_backend_pid()")
        os.kill(pid, signal.SIGKILL)

    @pytest.mark.parametrize("how", ["restart", "crash of one backend"])
    async def test_a_server_that_forgot_all_locks_gives_everybody_one_lease_of_grace(
        self, how: str, server: PostgresServer
    ) -> None:
        url = server.dsn
        await upgrade(url)
        with spawning(url) as spawn:
            async with Peer(url, "peer") as peer:
                async with locks(url) as seen:
                    # It cannot come back while this test looks, and its lease is over by then.
                    await stopped_worker(spawn, seen, peer, "w1")
                    sessions = await seen.holders("peer")
                    await seen.server.execute("UPDATE holdfast.workers SET lease_until = now()")
                    await self.forget(seen, server, how)
                await until(lambda: come_back(url, *sessions), "the server is there again")
                row = await self.found(peer, "w1")
                async with locks(url) as seen:
                    await seen.held_by_others_than("peer", *sessions)
                    assert not await peer.store.is_dead(row)
                    assert await peer.store.reap("w1", NOW) is None
                    row = await self.found(peer, "w1")
                    assert 3000 < row.lease_left_seconds <= 3600, "it has one lease of grace"
                    assert peer.gone == set()
                    await seen.server.execute(
                        "UPDATE holdfast.holdfast SET server_since = now() - interval '2 hours'"
                    )
                    await come(peer.told["w1"])
                reaped = await peer.store.reap("w1", NOW)
                assert reaped is not None and reaped.runs == ["run of w1"]
                assert await peer.ids() == {"peer"}

    async def found(self, peer: Peer, name: str) -> WorkerRow:
        (row,) = [row for row in await peer.store.workers() if row.id == name]
        return row


async def stopped_worker(spawn: Spawn, seen: Locks, peer: Peer, name: str) -> None:
    child = spawn("live", name)
    line(child)
    await watched_by(peer, seen, name)
    os.kill(child.pid, signal.SIGSTOP)
    await asyncio.to_thread(os.waitpid, child.pid, os.WUNTRACED)


async def test_the_lock_is_there_before_the_worker_is_published(url: str, seen: Locks) -> None:
    async with Peer(url, "w1") as made:
        assert len(await seen.holders("w1")) == 2
        assert not await made.store.is_dead(await only_worker(made.store))
