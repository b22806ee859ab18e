"""What a claim costs in PostgreSQL: what waits, sleeps, has ended or stands in line is not looked
at."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from holdfast.store import upgrade
from holdfast.store.base import Append, End, Suspend
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres_address import parse
from holdfast.store.postgres_values import append_values
from holdfast.testing.conformance.given import (
    NOW,
    claim_ids,
    start,
    started_and_claimed,
    worker,
)
from holdfast.testing.postgres import PostgresServer
from holdfast.types import Entry, Kind, RunRow, Status

INSERT = """
INSERT INTO runs (id, workflow, status, created_at, updated_at, incarnation, digest, input,
    ready_at, blocked, session, ended_at, epoch, fairness_key)
SELECT $1 || n, $2, 'pending', 1, $3, '', '', '', $4, $5, $6, $7, $8,
    CASE $9 WHEN 'own' THEN 'key ' || n ELSE $9 END
FROM generate_series(1, 20000) n
"""
USUAL = {
    "workflow": "research",
    "updated": 1,
    "ready_at": None,
    "blocked": False,
    "session": None,
    "ended_at": None,
    "epoch": 1,
    "key": "",
}
READ = """
SELECT sum(pg_stat_get_xact_tuples_returned(c.oid) + pg_stat_get_xact_tuples_fetched(c.oid))
FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relname LIKE 'runs%'
"""
"""How many rows and index entries of runs this transaction has looked at."""


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    await upgrade(postgres_url)
    store = PostgresStore(postgres_url)
    await store.open()
    await worker(store)
    yield store
    await store.close()


@pytest.fixture
async def session(
    store: PostgresStore, postgres: PostgresServer, postgres_url: str
) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres.dsn)
    await connection.execute(f"SET search_path = {parse(postgres_url).schema}")
    yield connection
    await connection.close()


async def read_by(session: Any, sql: str, *values: object) -> int:
    """How much is looked at; what it wrote is undone."""
    transaction = session.transaction()
    await transaction.start()
    await session.fetch(sql, *values)
    count: int = await session.fetchval(READ)
    await transaction.rollback()
    return count


async def costs(session: Any) -> list[int]:
    claim = "SELECT claim($1, false, 'w1', ARRAY['research'], $2, 3, true)"
    return [
        await read_by(session, claim, uuid.uuid4(), NOW),
        await read_by(session, "SELECT next_ready(ARRAY['research'], 2, 'w1')"),
        await read_by(session, "SELECT is_behind('research', 'default', 9, $1)", NOW),
    ]


@pytest.mark.parametrize(
    "many",
    [
        {"id": "timer", "ready_at": NOW + 1},
        {"id": "timer of a key", "ready_at": NOW + 1, "key": "a"},
        {"id": "timer of its own key", "ready_at": NOW + 1, "key": "own"},
        {"id": "mail"},
        {"id": "behind", "ready_at": NOW, "blocked": True, "session": "session"},
        {"id": "unserved", "workflow": "other", "ready_at": NOW},
        {"id": "ended", "ended_at": 1},
        {"id": "in line", "ready_at": NOW, "updated": NOW},
        {"id": "of a key", "ready_at": NOW, "updated": NOW, "key": "0000a", "epoch": 0},
    ],
    ids=lambda many: many["id"],
)
@pytest.mark.parametrize("analyzed", [False, True])
async def test_20_000_others_cost_a_claim_nothing(
    store: PostgresStore, session: Any, many: dict[str, Any], analyzed: bool
) -> None:
    for n in range(4):
        await start(store, f"due-{n}", ready_at=NOW - 9 + n)
    before = await costs(session)
    values = {"id": "", **USUAL, **many}
    await session.execute(INSERT, *values.values())
    if analyzed:
        await session.execute("ANALYZE runs")
    after = await costs(session)
    for had, has in zip(before, after, strict=True):
        assert has <= had + 60, (before, after)
    assert len(await claim_ids(store, limit=3)) == 3


async def costs_of_writes(session: Any, run: RunRow) -> list[int]:
    entry = [Entry(2, Kind.STEP, "/a#0", NOW)]
    thens = (None, Suspend(NOW, 0, ""), End(Status.COMPLETED, b"1"))
    calls: list[tuple[str, list[Any]]] = [
        ("append", append_values([Append(run.key, run.epoch, entry, NOW, then)])) for then in thens
    ]
    calls += [
        ("post", [run.id, "message", "", None, NOW]),
        ("release", ["w1", [run.key], [run.epoch], NOW]),
        ("resume", [run.id, NOW]),
    ]
    costs = []
    for function, values in calls:
        marks = ", ".join(f"${n}" for n in range(2, len(values) + 2))
        sql = f"SELECT {function}($1, false, {marks})"
        costs.append(await read_by(session, sql, uuid.uuid4(), *values))
    return costs


async def test_20_000_runs_that_came_since_cost_a_write_nothing(
    store: PostgresStore, session: Any
) -> None:
    """Its plans were made when there were few, and no ANALYZE has told the server of the others."""
    run = await started_and_claimed(store, "mine")
    before = await costs_of_writes(session, run)
    await session.execute(INSERT, *{"id": "other", **USUAL}.values())
    after = await costs_of_writes(session, run)
    # An old server adds up what a few transactions did; to read all would be 20,000 each.
    for had, has in zip(before, after, strict=True):
        assert has <= had + 1000, (before, after)


async def test_who_comes_back_starts_where_the_last_one_served_stood(session: Any) -> None:
    await session.execute(
        "SELECT serve_shares(ARRAY['q', 'q', 'q'], ARRAY['a', 'b', 'a'], ARRAY[0, 0, 1]::bigint[])"
    )
    rows = await session.fetch("SELECT key, served FROM shares ORDER BY key")
    assert [tuple(row) for row in rows] == [("", 1), ("a", 2), ("b", 1)]
