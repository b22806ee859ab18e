"""Runs that sleep on PostgreSQL: how fast they are accepted, and what a worker beside them does."""

from __future__ import annotations

import asyncio
import gc
import re
import time
from dataclasses import dataclass

import holdfast
from benchmarks.setting import Setting, resident_mb
from benchmarks.sleepers import AT_ONCE, PATIENCE_SECONDS, sleeper, start
from holdfast.store import upgrade
from holdfast.testing.postgres import PostgresServer


@dataclass(frozen=True)
class Idle:
    """What a process does in a second, while there is nothing to do."""

    statements: float
    cpu_milliseconds: float


async def sleepers(setting: Setting) -> None:
    count, window = (5000, 10.0) if setting.quick else (100_000, 60.0)
    with PostgresServer() as server:
        await upgrade(server.dsn)
        app = holdfast.Holdfast(server.dsn, workflows=[sleeper])
        async with app:
            await start(app, range(-AT_ONCE, 0))
            await _until_waiting(server, AT_ONCE)
            alone = await _idle(server, window)
            gc.collect()
            rss = resident_mb()
            since = time.perf_counter()
            await start(app, range(count))
            accepted = time.perf_counter() - since
            await _until_waiting(server, AT_ONCE + count)
            suspended = time.perf_counter() - since
            gc.collect()
            grown = resident_mb() - rss
            beside = await _idle(server, window)
    setting.add(f"{count:,} runs accepted", accepted, "s")
    setting.add(f"{count:,} runs suspended", suspended, "s")
    setting.add("resident memory grown by", grown, "MB", "under 40")
    name = f"beside {count:,} sleeping runs"
    setting.add(f"statements of an idle worker, {name}", beside.statements, "per s", "about 1")
    setting.add(f"the same, beside {AT_ONCE}", alone.statements, "per s")
    setting.add(f"CPU of an idle worker, {name}", beside.cpu_milliseconds, "ms per s")
    setting.add(f"the same, beside {AT_ONCE}", alone.cpu_milliseconds, "ms per s")


async def _until_waiting(server: PostgresServer, count: int) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    sql = "SELECT count(*) FROM holdfast.runs WHERE status = 'waiting'"
    while (found := int((await asyncio.to_thread(server.sql, sql))[0][0])) != count:
        if time.monotonic() > until:
            raise TimeoutError(f"{found} of {count} runs are waiting")
        await asyncio.sleep(0.2)


async def _idle(server: PostgresServer, seconds: float) -> Idle:
    """What the only worker of a server does; the server logs its statements meanwhile."""
    await _log_statements(server, "all")
    read, cpu, since = len(server.log), time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    spent, over = time.process_time() - cpu, time.monotonic() - since
    await _log_statements(server, "none")
    statements = re.findall(r"\] holdfast LOG: +(?:execute|statement)", server.log[read:])
    return Idle(len(statements) / over, spent * 1e3 / over)


async def _log_statements(server: PostgresServer, which: str) -> None:
    for sql in (f"ALTER SYSTEM SET log_statement = '{which}'", "SELECT pg_reload_conf()"):
        await asyncio.to_thread(server.sql, sql)
