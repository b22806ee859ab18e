"""The database may fail over: nothing that was acknowledged is lost, and none of it is done again.

An auditor stands between the workers and the store, and an observer beside the steps: what was
acknowledged and what was executed is counted outside of the database that dies.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast.errors import LeaseLost
from holdfast.store import upgrade
from holdfast.store.base import Append, Appended, Operation, Outcome, Started, Store
from holdfast.store.postgres import PostgresStore
from holdfast.testing.postgres import PostgresServer
from holdfast.types import Kind, RunFilter, RunRow, Status
from holdfast.worker.options import WorkerOptions

RUNS = 200
STEPS = 10
SECONDS_MAX = 120
SCHEMA = "holdfast"


permits = asyncio.Semaphore(0)


@pytest.fixture(autouse=True)
def nothing_is_permitted() -> None:
    global permits
    permits = asyncio.Semaphore(0)


def permit(steps: int) -> None:
    """So many more may begin: a server dies in the middle, however quick they are."""
    for _ in range(steps):
        permits.release()


@holdfast.step
async def work(number: int) -> int:
    await permits.acquire()
    return number


@holdfast.workflow
async def chain(steps: int) -> int:
    return sum([await work(number) for number in range(steps)])


class Auditor:
    """A store as its worker sees it, and a record of all it was told."""

    def __init__(self, url: str) -> None:
        self._store = PostgresStore(url)
        self.acknowledged: set[tuple[str, str]] = set()
        self.accepted: set[str] = set()
        self.repeated: list[tuple[str, str]] = []
        self.executed: Counter[tuple[str, str]] = Counter()
        self.refused: list[Exception] = []
        self.changed = asyncio.Event()
        self._ids: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, operations: Sequence[Operation], *, request: str = "") -> list[Outcome]:
        outcomes = await self._store.commit(operations, request=request)
        for operation, outcome in zip(operations, outcomes, strict=True):
            if isinstance(outcome, Started):
                self.accepted.add(outcome.row.id)
                self._ids[outcome.row.key] = outcome.row.id
            elif isinstance(outcome, Appended) and isinstance(operation, Append):
                run = self._ids[operation.run]
                steps = [entry for entry in operation.entries if entry.kind is Kind.STEP]
                self.acknowledged.update((run, entry.key) for entry in steps)
            elif not isinstance(outcome, Appended):
                self.refused.append(outcome.error)
        self.changed.set()
        return outcomes

    def began(self, row: RunRow, key: str, digest: bytes | None) -> None:
        self._ids[row.key] = row.id
        self.executed[row.id, key] += 1
        if (row.id, key) in self.acknowledged:
            self.repeated.append((row.id, key))

    async def until_acknowledged(self, count: int) -> None:
        while len(self.acknowledged) < count:
            self.changed.clear()
            await self.changed.wait()


@asynccontextmanager
async def serving(url: str) -> AsyncIterator[tuple[holdfast.Holdfast, Auditor]]:
    auditor = Auditor(url)
    options = WorkerOptions(lease=timedelta(seconds=30), on_step=auditor.began)
    app = holdfast.Holdfast(cast(Store, auditor), workflows=[chain], worker_options=options)
    async with app:
        yield app, auditor


async def finish(app: holdfast.Holdfast, ids: set[str]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        results = await asyncio.gather(*(app.result(id) for id in sorted(ids)))
    assert results == [sum(range(STEPS))] * len(ids)


async def start_all(app: holdfast.Holdfast, count: int = RUNS) -> None:
    await asyncio.gather(
        *(app.with_options(id=f"run-{number}").start(chain, STEPS) for number in range(count))
    )


@pytest.fixture
def pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    with PostgresServer() as primary:
        yield primary, primary.standby(synchronous=True)


def url_of(*servers: PostgresServer) -> str:
    """One address for all of them."""
    hosts = ",".join(f"127.0.0.1:{urlsplit(server.dsn).port}" for server in servers)
    parts = urlsplit(servers[0].dsn)
    return f"postgresql://{parts.username}:{parts.password}@{hosts}{parts.path}"


async def test_with_a_synchronous_standby_a_failover_loses_nothing_and_repeats_nothing(
    pair: tuple[PostgresServer, PostgresServer],
) -> None:
    primary, standby = pair
    await upgrade(primary.dsn)
    async with serving(url_of(primary, standby)) as (app, auditor):
        permit(RUNS * STEPS // 2)
        starting = asyncio.create_task(start_all(app))
        await asyncio.wait_for(auditor.until_acknowledged(RUNS * STEPS // 4), SECONDS_MAX)
        await asyncio.to_thread(primary.kill)
        before = set(auditor.acknowledged)
        assert len(before) < RUNS * STEPS, "it died in the middle"
        permit(2 * RUNS * STEPS)
        await asyncio.to_thread(standby.promote)
        await asyncio.wait_for(starting, SECONDS_MAX)
        await finish(app, auditor.accepted)
        assert len(auditor.accepted) == RUNS
        assert before <= auditor.acknowledged
        assert auditor.repeated == []
        found = await app.list(RunFilter(status=frozenset({Status.COMPLETED}), limit=2 * RUNS))
        assert {run.id for run in found} == auditor.accepted
        assert await app.store.check() == []
    assert not [error for error in auditor.refused if not isinstance(error, LeaseLost)]


async def test_a_restart_of_the_server_loses_nothing_and_repeats_nothing() -> None:
    with PostgresServer() as server:
        await upgrade(server.dsn)
        async with serving(server.dsn) as (app, auditor):
            starting = asyncio.create_task(start_all(app))
            permit(RUNS * STEPS // 4)
            for quarter in (1, 2, 3):
                permit(RUNS * STEPS // 4)
                wanted = RUNS * STEPS * quarter // 4
                await asyncio.wait_for(auditor.until_acknowledged(wanted), SECONDS_MAX)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.restart)
            permit(RUNS * STEPS)  # some may have been begun again
            await asyncio.wait_for(starting, SECONDS_MAX)
            await finish(app, auditor.accepted)
            assert len(auditor.accepted) == RUNS
            assert auditor.repeated == []
            assert await app.store.check() == []


async def test_a_region_that_takes_over_loses_what_had_not_reached_it_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with PostgresServer() as primary:
        standby = primary.standby(synchronous=False)
        await upgrade(primary.dsn)
        async with serving(url_of(primary, standby)) as (app, auditor):
            permit(RUNS * STEPS // 2)
            await start_all(app)
            await asyncio.wait_for(auditor.until_acknowledged(RUNS * STEPS // 4), SECONDS_MAX)
            await asyncio.to_thread(standby.cut_replication)
            arrived = int(
                standby.sql(f"SELECT count(*) FROM {SCHEMA}.journal WHERE kind = 'step'")[0][0]
            )
            permit(RUNS * STEPS // 4)
            wanted = max(len(auditor.acknowledged) + 50, RUNS * STEPS // 2)
            await asyncio.wait_for(auditor.until_acknowledged(wanted), SECONDS_MAX)
            await asyncio.to_thread(primary.kill)
            assert len(auditor.acknowledged) < RUNS * STEPS, "it died in the middle"
            lost = len(auditor.acknowledged) - arrived
            permit(2 * RUNS * STEPS)
            await asyncio.to_thread(standby.promote)
            await finish(app, {f"run-{number}" for number in range(RUNS)})
            # Bounded: nothing that had arrived there was done again.
            assert 0 < len(auditor.repeated) <= lost
            assert "has lost the last" in caplog.text
            assert await app.store.check() == []

            # The old primary comes back, and takes writes: it is refused.
            await asyncio.to_thread(primary.restart)
            fresh = PostgresStore(url_of(primary, standby))
            await fresh.open()
            ended = await fresh.find(
                RunFilter(status=frozenset({Status.COMPLETED}), limit=2 * RUNS)
            )
            await fresh.close()
            assert len(ended) == RUNS, "this is the new one"

            # A request that is sent again is still one run.
            await start_all(app)
            assert len(await app.list(RunFilter(limit=2 * RUNS))) == RUNS
