"""Through PgBouncer in transaction mode, as docs/postgres.md says: statements go through it, signs
of life and notifications past it, to the servers themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

pytest.register_assert_rewrite("holdfast.testing")

import holdfast  # noqa: E402
from holdfast.errors import Unsupported  # noqa: E402
from holdfast.store import upgrade  # noqa: E402
from holdfast.store.base import Store  # noqa: E402
from holdfast.store.postgres import PostgresStore  # noqa: E402
from holdfast.testing.postgres import PostgresServer  # noqa: E402
from holdfast.testing.store_conformance import StoreConformance  # noqa: E402
from tests.crash.agent import client, line  # noqa: E402
from tests.crash.fleet import Fleet, Observer  # noqa: E402
from tests.store.pooler import pgbouncer  # noqa: E402

pytestmark = pytest.mark.full

WORKERS = 3
RUNS = 30


@pytest.fixture(scope="module")
def pooler(postgres: PostgresServer) -> Iterator[int]:
    with pgbouncer(postgres) as port:
        yield port


@pytest.fixture
def pooled_url(postgres: PostgresServer, pooler: int, postgres_url: str) -> str:
    url = postgres_url.replace(f":{postgres.port}/", f":{pooler}/")
    return f"{url}&direct=127.0.0.1:{postgres.port}"


class TestPooled(StoreConformance):
    @pytest.fixture
    async def store(self, pooled_url: str) -> AsyncIterator[Store]:
        await upgrade(pooled_url)
        store = PostgresStore(pooled_url)
        await store.open()
        yield store
        await store.close()


async def test_workers_that_share_few_sessions_do_all_and_take_over_from_the_dead(
    pooled_url: str,
) -> None:
    await upgrade(pooled_url)
    async with Observer() as observer, client(pooled_url) as app:
        async with Fleet(pooled_url, observer) as fleet:
            observer.holds = lambda effect: effect.name == "two"
            workers = [await fleet.add() for _ in range(WORKERS)]
            runs: list[holdfast.Run[list[str]]] = [
                await app.start(line, ["one", "two", "three"]) for _ in range(RUNS)
            ]
            held = [await observer.sees("two", run=run.id) for run in runs]
            dead = next(worker for worker in workers if worker.pid == held[0].pid)
            await dead.kill()
            observer.let_all_go()
            await asyncio.gather(*(run.result() for run in runs))
            for run, effect in zip(runs, held, strict=True):
                twice = ["two"] if effect.pid == dead.pid else []
                assert observer.names(run=run.id) == ["one", "two", *twice, "three"]


@pytest.mark.parametrize("more", ["", "ignore_startup_parameters = {}"])
async def test_a_pooler_without_a_way_past_it_is_refused(
    more: str, postgres: PostgresServer
) -> None:
    ours = "client_connection_check_interval,tcp_keepalives_idle,tcp_keepalives_interval"
    ignored = more.format(f"{ours},tcp_keepalives_count")
    with pgbouncer(postgres, ignored) as port:
        store = PostgresStore(postgres.dsn_of("postgres", port=port))
        with pytest.raises(Unsupported, match=r"leads to a pooler.*direct="):
            await store.open()
