"""Workers that stop or die while the server works on a statement of theirs."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

import pytest

import holdfast
from holdfast.types import Kind
from tests.crash.agent import line
from tests.crash.fleet import Fleet, Observer, Process
from tests.store.locks import Locks, locks, until

LEASE = 10.0


@pytest.fixture
async def seen(url: str) -> AsyncIterator[Locks]:
    async with locks(url) as made:
        yield made


@pytest.fixture
async def rival(url: str) -> AsyncIterator[Locks]:
    """Somebody who keeps a row locked."""
    async with locks(url) as made:
        yield made


async def in_flight(
    app: holdfast.Holdfast, observer: Observer, seen: Locks, rival: Locks, worker: Process
) -> tuple[holdfast.Run[list[str]], int]:
    """A run whose last commit waits in the server for the rival; and its session."""
    observer.holds = lambda effect: effect.name == "two"
    run = await app.start(line, ["one", "two"])
    held = await observer.sees("two", pid=worker.pid)
    await rival.server.execute("BEGIN")
    lock = f'SELECT 1 FROM "{seen.schema}".runs WHERE id = $1 FOR UPDATE'
    await rival.server.execute(lock, run.id)
    held.let_go()
    rivals = await rival.server.fetchval("SELECT pg_backend_pid()")

    async def blocked() -> list[int]:
        sql = """SELECT pid FROM pg_stat_activity
            WHERE $1 = ANY(pg_blocking_pids(pid)) AND query LIKE '%append%'"""
        return [row["pid"] for row in await seen.server.fetch(sql, rivals)]

    (session,) = await until(blocked, "the end of the run waits in the server")
    return run, session


async def claims(app: holdfast.Holdfast, run: str) -> int:
    return sum(entry.kind is Kind.CLAIM for entry in await app.history(run))


async def test_a_worker_stopped_with_a_statement_in_flight_blocks_nobody(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer, seen: Locks, rival: Locks
) -> None:
    stopped = await fleet.add(lease=LEASE)
    run, session = await in_flight(app, observer, seen, rival, stopped)
    # It is there before the other one stops: else it might begin by waiting for the rival, too.
    peer = await fleet.add()
    stopped.send(signal.SIGSTOP)
    await rival.server.execute("COMMIT")
    # The statement ends without its client, and leaves no transaction open.
    state = f"SELECT 1 FROM pg_stat_activity WHERE pid = {session} AND state = 'idle'"
    await until(lambda: seen.server.fetchval(state), "the stopped worker's session is idle")
    assert len(await run.result()) == 2
    assert await claims(app, run.id) == 1
    observer.let_all_go()
    others = [await app.start(line, ["three", "four"]) for _ in range(5)]
    for other in others:
        assert len(await other.result()) == 2
    await peer.says("is gone: 0 runs go on elsewhere")
    assert set(observer.names(pid=stopped.pid)) == {"one", "two"}
    stopped.send(signal.SIGCONT)
    await stopped.says("lost its lease")
    assert observer.names(run=run.id) == ["one", "two"]


async def test_a_worker_killed_with_a_statement_in_flight_leaves_it_done_or_undone(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer, seen: Locks, rival: Locks
) -> None:
    killed = await fleet.add()
    run, session = await in_flight(app, observer, seen, rival, killed)
    peer = await fleet.add()
    await killed.kill()
    # The server looks after its clients now and then: it undoes what nobody waits for any more.
    gone = f"SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = {session})"
    await until(lambda: seen.server.fetchval(gone), "the killed worker's session has ended")
    await rival.server.execute("COMMIT")
    (await observer.sees("two", pid=peer.pid)).let_go()
    tokens = await run.result()
    last = {effect.name: effect.token for effect in observer.effects}
    assert tokens == [last["one"], last["two"]]
    assert observer.names() == ["one", "two", "two"]
    assert await claims(app, run.id) == 2
