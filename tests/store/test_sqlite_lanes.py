"""What a claim costs in a SQLite file: what waits, sleeps, has ended or stands in line is not
looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from holdfast.store import sqlite_claims
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.sqlite_lanes import Db
from holdfast.store.sqlite_rows import SQL
from holdfast.testing.conformance.given import NOW, claim_ids, start, worker

INSERT = (
    "INSERT INTO runs (id, workflow, status, created_at, updated_at, incarnation, digest, input,"
    " ready_at, blocked, session, ended_at, epoch, fairness_key) "
    "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20000) "
    "SELECT :id || n, :workflow, 'pending', 1, :updated, '', '', '', :ready_at, :blocked, :session,"
    " :ended_at, :epoch, CASE :key WHEN 'own' THEN 'key ' || n ELSE :key END FROM n"
)
USUAL = {
    "workflow": "research",
    "updated": 1,
    "ready_at": None,
    "blocked": 0,
    "session": None,
    "ended_at": None,
    "epoch": 1,
    "key": "",
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(str(tmp_path / "runs.db"))
    await store.open()
    await worker(store)
    yield store
    await store.close()


async def steps_of(store: SQLiteStore, work: Callable[[Db], object]) -> int:
    """How much SQLite computes: no clock is steady enough. What it wrote is undone."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    def measured(db: Db) -> None:
        db.execute("SAVEPOINT measured")
        db.set_progress_handler(tick, 10)
        work(db)
        db.set_progress_handler(None, 0)
        db.execute("ROLLBACK TO measured")
        db.execute("RELEASE measured")

    await store._writer.run(measured)
    return count


def claim(db: Db) -> None:
    found = sqlite_claims.claim(db, "w1", ["research"], NOW, 3, True)
    assert [claimed.row.id for claimed in found] == ["due-0", "due-1", "due-2"]


WORK: list[Callable[[Db], object]] = [
    claim,
    lambda db: sqlite_claims.next_ready(db, ["research"], False, "w1"),
    lambda db: sqlite_claims.is_behind(db, "research", "other", 0, NOW),
]


@pytest.mark.parametrize(
    "many",
    [
        {"id": "timer", "ready_at": NOW + 1},
        {"id": "timer of a key", "ready_at": NOW + 1, "key": "a"},
        {"id": "timer of its own key", "ready_at": NOW + 1, "key": "own"},
        {"id": "delayed", "ready_at": NOW + 1, "epoch": 0},
        {"id": "mail"},
        {"id": "behind", "ready_at": NOW, "blocked": 1, "session": "session"},
        {"id": "unserved", "workflow": "other", "ready_at": NOW},
        {"id": "ended", "ended_at": 1},
        {"id": "in line", "ready_at": NOW + 0, "updated": NOW},
        {"id": "in line for the first time", "ready_at": NOW, "updated": NOW, "epoch": 0},
    ],
    ids=lambda many: many["id"],
)
async def test_20_000_others_cost_a_claim_nothing(
    store: SQLiteStore, many: dict[str, object]
) -> None:
    for n in range(4):
        await start(store, f"due-{n}", ready_at=NOW - 9 + n)
    before = [await steps_of(store, work) for work in WORK]
    await store._writer.run(lambda db: db.execute(INSERT, {**USUAL, **many}))
    after = [await steps_of(store, work) for work in WORK]
    for had, has in zip(before, after, strict=True):
        assert has <= had + 60, (before, after)


async def test_a_long_line_of_a_key_is_one_step(store: SQLiteStore) -> None:
    for n in range(4):
        await start(store, f"due-{n}", ready_at=NOW - 9 + n, fairness_key="key")
    before = [await steps_of(store, work) for work in WORK]
    long = {"id": "long", "ready_at": NOW, "updated": NOW, "key": "0000other", "epoch": 0}
    await store._writer.run(lambda db: db.execute(INSERT, {**USUAL, **long}))

    def claim(db: Db) -> None:
        assert len(sqlite_claims.claim(db, "w1", ["research"], NOW, 3, True)) == 3

    after = [await steps_of(store, work) for work in (claim, *WORK[1:])]
    for had, has in zip(before, after, strict=True):
        assert has <= had + 100, (before, after)
    assert len(await claim_ids(store, limit=2)) == 2


async def test_the_index_leads_to_the_runs_that_are_due(store: SQLiteStore) -> None:
    given = {
        "workflows": '["research"]',
        "lanes": '[["research", "default", "", ">"]]',
        "workflow": "research",
        "queue": "default",
        "priority": 0,
        "now": NOW,
        "limit": 10,
        "strikes": 2,
        "from": "+",
        "until": ",",
        "prefix": 1,
    }
    for name in ("ready_heads", "put_in_line", "keyed_lanes", "claimable", "next_ready"):
        wanted = {key: value for key, value in given.items() if f":{key}" in SQL[name]}
        plan = store._reader._db.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", wanted).fetchall()
        lines = [str(found[3]) for found in plan]
        assert any("USING INDEX runs_ready (workflow=? AND queue=?" in line for line in lines)
        assert not any(line.startswith(("SCAN runs", "SCAN r", "SCAN other")) for line in lines)


async def test_running_runs_are_counted_by_worker(store: SQLiteStore) -> None:
    plan = store._reader._db.execute(f"EXPLAIN QUERY PLAN {SQL['running']}", ("q",)).fetchall()
    assert any("COVERING INDEX runs_owner (owner=? AND queue=?)" in found[3] for found in plan)
