"""Stores to move, of both kinds; what is in them, and processes that use them."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg

from holdfast import store
from holdfast.store import copying
from holdfast.store.base import Store
from holdfast.store.moving import Movable
from holdfast.testing.conformance.given import NOW, append, start, started_and_claimed, step, worker
from holdfast.testing.conformance.schedules import put
from holdfast.testing.postgres import PostgresServer
from holdfast.types import MailKind
from tests.helpers.processes import ROOT, environment
from tests.store import moving_agent

Urls = Callable[[str], str]
KINDS = ("sqlite", "postgres")
_names = itertools.count()

# Rows that no verb of these tests writes.
FURTHER = """
INSERT INTO queues (name, concurrency, next_at, paused) VALUES ('slow', 3, 17, {true});
INSERT INTO shares (queue, key, served) VALUES ('slow', 'Ünïted', 4), ('slow', 'ann', 2);
INSERT INTO limits (name, next_at, held_until) VALUES ('model', 5, 6);
INSERT INTO tombstones (id, workflow, status, digest, ended_at, expires_at)
    VALUES ('gone', 'research', 'completed', {bytes}, 1, 2), ('Gone', 'x', 'failed', {bytes}, 1, 9);
INSERT INTO session_state (session, key, value) VALUES ('b', 'x', {bytes}), ('B', 'ä', {bytes});
INSERT INTO session_messages (session, payload) VALUES ('b', {bytes}), ('b', {bytes});
INSERT INTO sessions (name, used_at) VALUES ('b', 3), ('B', 0);
INSERT INTO promises (run, name, key, kind, type, created_at, resolved)
    VALUES (1, 'p', '/p#0', 'promise', 'int', 1, {true}), (1, 'P', '/', 'approval', '', 1, {false});
INSERT INTO joins (id, run, digest) VALUES ('joined', 1, {bytes});
"""


def new_urls(folder: Path, server: PostgresServer) -> Urls:
    """Names stores of a kind, that do not exist yet."""

    def new(kind: str) -> str:
        name = f"moving_{next(_names)}"
        if kind == "sqlite":
            return f"sqlite:///{folder}/{name}.db"
        return f"{server.dsn}?schema={name}"

    return new


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    await store.upgrade(url)
    found = store.open_store(url)
    await found.open()
    try:
        yield found
    finally:
        await found.close()


@asynccontextmanager
async def end(url: str) -> AsyncIterator[Movable]:
    found = store._end(url)
    assert await found.exists()
    try:
        yield found
    finally:
        await found.close()


async def dump(url: str) -> dict[str, list[Any]]:
    """All rows that are moved, and the counters."""
    async with end(url) as found:
        rows: dict[str, list[Any]] = {}
        for table in copying.TABLES:
            columns = sorted(
                set(await found.columns(table)) - copying.UNSHARED.get(table.name, set())
            )
            rows[table.name] = [r async for c in found.read(table, columns, None) for r in c]
        rows["counters"] = sorted((await found.counters()).items())
        return rows


async def state_of(url: str) -> str | None:
    found = store._end(url)
    try:
        mark = await found.mark() if await found.exists() else None
        return mark.state if mark is not None else None
    finally:
        await found.close()


async def execute(url: str, script: str) -> None:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
            db.executescript(script.format(true=1, false=0, bytes="x'00ff'"))
        db.close()
        return
    dsn, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(dsn)
    try:
        values = script.format(true="true", false="false", bytes="'\\x00ff'::bytea")
        await connection.execute(f"SET search_path = {schema}; {values}")
    finally:
        await connection.close()


async def fill(url: str, runs: int = 8) -> None:
    """Rows in every table; its worker is gone without a word."""
    async with opened(url) as made:
        await worker(made, lease_seconds=0)
        for n in range(runs):
            run = await started_and_claimed(made, f"run {n}")
            await made.commit([append(run, step(2, output=b"\0\xff"), step(3), step(4))])
        await start(made, "pending", session="s", priority=3)
        await start(made, "also pending", session="s", options=b"{}", deadline_at=NOW)
        await made.post("pending", MailKind.MESSAGE, "", b"hello", NOW)
        await made.post("run 1", MailKind.PROMISE, "p", None, NOW)
        await made.post("pending", MailKind.MESSAGE, "", b"again", NOW)
        await put(made, "nightly")
        await put(made, "Ä", paused=True, next_at=None)
    await execute(url, FURTHER)


@contextmanager
def agent(*arguments: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.store.moving_agent", *arguments],
        cwd=ROOT,
        env={**environment(), moving_agent.FOLDER: str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def heard(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return (await asyncio.to_thread(process.stdout.readline)).split()
