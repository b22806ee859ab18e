"""The same on PostgreSQL: real servers on loopback, fsync on, both cores shared with them."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from urllib.parse import urlsplit

import asyncpg

import holdfast
from benchmarks import takeover
from benchmarks.figures import middle
from benchmarks.setting import PAYLOAD, Setting
from benchmarks.share import Share
from benchmarks.throughput import chain
from holdfast.store import open_store, upgrade
from holdfast.store.base import Append, Start, Started, Store
from holdfast.testing.postgres import PostgresServer
from holdfast.types import Entry, Kind, NewRun, RunRow, WorkerRow

INSERT = """
INSERT INTO raw (run, seq, kind, key, at, epoch, position, attempt, failed, digest, input, output)
SELECT * FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[], $5::bigint[],
    $6::integer[], $7::integer[], $8::integer[], $9::boolean[], $10::bytea[], $11::bytea[],
    $12::bytea[])
"""


async def raw_rows_per_second(dsn: str, *, commits: int, rows: int) -> float:
    """What PostgreSQL does with rows like ours on one connection, so many to a commit."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS raw (LIKE holdfast.journal INCLUDING ALL); TRUNCATE raw"
        )
        insert = await connection.prepare(INSERT)
        output = PAYLOAD.encode()
        since = time.perf_counter()
        for commit in range(commits):
            seqs = range(commit * rows, commit * rows + rows)
            columns = zip(
                *[
                    (1, n, "step", f"/work#{n}", 0, 1, 1, 1, False, b"d" * 16, b"[1]", output)
                    for n in seqs
                ],
                strict=True,
            )
            await insert.fetch(*map(list, columns))
        return commits * rows / (time.perf_counter() - since)
    finally:
        await connection.close()


async def sequential(setting: Setting) -> None:
    """One run of 1,000 steps that return 1 KB each, between measurements of the raw limit."""
    steps, rounds, commits = (300, 2, 300) if setting.quick else (1000, 5, 600)
    rates: list[float] = []
    limits: list[float] = []
    with PostgresServer() as server:
        await upgrade(server.dsn)
        for _ in range(rounds):
            before = await raw_rows_per_second(server.dsn, commits=commits, rows=1)
            app = holdfast.Holdfast(server.dsn, workflows=[chain])
            async with app:
                await (await app.start(chain, 50)).result()
                since = time.perf_counter()
                await (await app.start(chain, steps)).result()
                rates.append(steps / (time.perf_counter() - since))
            after = await raw_rows_per_second(server.dsn, commits=commits, rows=1)
            limits.append((before + after) / 2)
    ratio = middle(rate / limit for rate, limit in zip(rates, limits, strict=True))
    setting.add("ratio to raw commits of one row", ratio, "", "at least 0.6")
    setting.add("durable steps", middle(rates), "steps/s")
    setting.add("raw durable commits", middle(limits), "commits/s")


async def parallel(setting: Setting) -> None:
    """2,000 runs of 10 steps each, between measurements of the raw limit: by one worker process,
    which its own processor time bounds, and by two, which share both cores with the server."""
    for processes in (1, 2):
        await _many(setting, processes)


async def _many(setting: Setting, processes: int) -> None:
    runs, steps, rounds, commits = (300, 10, 2, 50) if setting.quick else (2000, 10, 5, 150)
    rates: list[float] = []
    limits: list[float] = []
    micros: list[float] = []
    with PostgresServer() as server:
        await upgrade(server.dsn)
        shares = [
            Share(server.dsn, runs // processes, steps, setting.loop) for _ in range(processes)
        ]
        for share in shares:
            await share.open()
        for _ in range(rounds):
            before = await raw_rows_per_second(server.dsn, commits=commits, rows=100)
            since = time.perf_counter()
            cpu = sum(await asyncio.gather(*(share.load() for share in shares)))
            rates.append(runs * steps / (time.perf_counter() - since))
            micros.append(cpu * 1e6 / (runs * steps))
            after = await raw_rows_per_second(server.dsn, commits=commits, rows=100)
            limits.append((before + after) / 2)
        for share in shares:
            await share.close()
    by = "one worker" if processes == 1 else f"{processes} workers"
    ratio = middle(rate / limit for rate, limit in zip(rates, limits, strict=True))
    setting.add(f"ratio to raw rows in commits of 100, {by}", ratio, "", "at least 0.3")
    setting.add(f"durable steps, {by}", middle(rates), "steps/s", "about 8,000")
    setting.add(f"CPU per step without the server, {by}", middle(micros), "µs")
    setting.add("raw durable rows", middle(limits), "rows/s")


async def kills(setting: Setting) -> None:
    """SIGKILL of a worker process that has a living peer; then of the primary itself."""
    with PostgresServer() as server:
        await upgrade(server.dsn)
        await takeover.measure(setting, server.dsn, 5 if setting.quick else 20)
    delays = [await _failover() for _ in range(1 if setting.quick else 3)]
    setting.add("promotion asked for to next step, median", middle(delays), "s", "under 3")
    setting.add("promotion asked for to next step, maximum", max(delays), "s")


async def _failover() -> float:
    began: list[float] = []

    def beat(row: RunRow, key: str, digest: bytes | None) -> None:
        began.append(time.monotonic())

    options = holdfast.WorkerOptions(on_step=beat)
    with PostgresServer() as primary:
        standby = primary.standby(synchronous=True)
        await upgrade(primary.dsn)
        parts = urlsplit(primary.dsn)
        hosts = f"127.0.0.1:{parts.port},127.0.0.1:{urlsplit(standby.dsn).port}"
        url = f"postgresql://{parts.username}:{parts.password}@{hosts}{parts.path}"
        app = holdfast.Holdfast(url, workflows=[chain], worker_options=options)
        async with app:
            await app.start(chain, 1_000_000)
            while len(began) < 100:  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.001)
            await asyncio.to_thread(primary.kill)
            asked, seen = time.monotonic(), len(began)
            await asyncio.to_thread(standby.promote)
            while len(began) == seen:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            delay = began[seen] - asked
            await app.close(grace=timedelta(0))
    return delay


# A million runs that have ended


async def grown(setting: Setting) -> None:
    """Start, claim and append beside a million ended and 100,000 sleeping runs."""
    ended, sleeping = (50_000, 5_000) if setting.quick else (1_000_000, 100_000)
    with PostgresServer() as server:
        await upgrade(server.dsn)
        store = open_store(server.dsn)
        await store.open()
        await store.register(WorkerRow("w", "", 0, "", 0, 3600.0))
        await _lives(store, "warm", 300)
        empty = await _lives(store, "empty", 1000)
        await _fill(server.dsn, ended, sleeping)
        await _lives(store, "warm-again", 300)
        full = await _lives(store, "full", 1000)
        await store.close()
        sizes = server.sql(
            "SELECT relname, pg_total_relation_size(oid) / 1e6 FROM pg_class "
            "WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r' "
            "ORDER BY 2 DESC LIMIT 3"
        )
    for name in empty:
        ratio = full[name] / empty[name]
        setting.add(f"{name}, beside {ended:,} ended runs / empty", ratio, "", "at most 1.3")
    for name, megabytes in sizes:
        setting.add(f"size of {name} with its indexes", float(megabytes), "MB")


async def _lives(store: Store, prefix: str, count: int) -> dict[str, float]:
    """The median time of each verb, one call after the other."""
    times: dict[str, list[float]] = {"start": [], "claim": [], "append": []}
    for n in range(count):
        now = time.time_ns() // 1000
        new = NewRun(
            id=f"{prefix}-{n}",
            workflow="w",
            input=b"[1]",
            digest=b"d",
            created_at=now,
            ready_at=now,
            incarnation="i",
        )
        since = time.perf_counter()
        (started,) = await store.commit([Start(new)])
        times["start"].append(time.perf_counter() - since)
        assert isinstance(started, Started)
        since = time.perf_counter()
        (claimed,) = await store.claim("w", ["w"], now, 1)
        times["claim"].append(time.perf_counter() - since)
        since = time.perf_counter()
        await store.commit([_step(claimed.row, claimed.seq + 1, now)])
        times["append"].append(time.perf_counter() - since)
    return {name: middle(values) for name, values in times.items()}


def _step(row: RunRow, seq: int, now: int) -> Append:
    entry = Entry(seq, Kind.STEP, "/work#0", now, digest=b"d", output=PAYLOAD.encode())
    return Append(row.key, row.epoch, [entry], now)


async def _fill(dsn: str, ended: int, sleeping: int) -> None:
    connection = await asyncpg.connect(dsn)
    common = "workflow, created_at, updated_at, incarnation, digest, input"
    values = "'w', 1, 1, 'i', 'd', repeat('x', 200)::bytea"
    for first in range(0, ended, 50_000):
        await connection.execute(f"""
            WITH made AS (
                INSERT INTO holdfast.runs (id, status, epoch, ended_at, {common})
                SELECT 'ended-' || n, 'completed', 1, 1, {values}
                FROM generate_series({first + 1}, {min(first + 50_000, ended)}) n
                RETURNING key)
            INSERT INTO holdfast.journal (run, seq, kind, key, at, epoch, position, attempt, failed,
                output)
            SELECT key, seq, 'step', '/work#' || seq, 1, 1, 1, 1, false, repeat('x', 200)::bytea
            FROM made CROSS JOIN generate_series(1, 3) seq""")
    await connection.execute(f"""
        INSERT INTO holdfast.runs (id, status, epoch, ready_at, {common})
        SELECT 'sleeping-' || n, 'waiting', 1, 9e15::bigint, {values}
        FROM generate_series(1, {sleeping}) n""")
    await connection.execute("ANALYZE")
    await connection.close()
