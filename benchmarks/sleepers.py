"""Runs that sleep: how fast they are accepted, what they leave in memory, how they wake."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import time
from datetime import timedelta
from pathlib import Path

import holdfast
from benchmarks.setting import Setting, remove, resident_mb

NAP = timedelta(days=1)
PATIENCE_SECONDS = 900.0
AT_ONCE = 500

early: list[str] = []


@holdfast.workflow
async def sleeper(n: int) -> int:
    due = holdfast.now() + NAP
    await holdfast.sleep(NAP)
    if holdfast.now() < due:
        early.append(f"run {n}")
    return n


async def sleepers(setting: Setting) -> None:
    count = 5000 if setting.quick else 100_000
    folder = setting.fresh()
    path = folder / "bench.db"
    clock = holdfast.FakeClock()
    app = holdfast.Holdfast(f"sqlite:///{path}", workflows=[sleeper], clock=clock)
    async with app:
        await start(app, range(-AT_ONCE, 0))
        await _until(path, "waiting", AT_ONCE)
        gc.collect()
        rss = resident_mb()
        since = time.perf_counter()
        await start(app, range(count))
        accepted = time.perf_counter() - since
        await _until(path, "waiting", AT_ONCE + count)
        suspended = time.perf_counter() - since
        gc.collect()
        grown = resident_mb() - rss
        since = time.perf_counter()
        clock.advance(NAP)
        await _until(path, "completed", AT_ONCE + count)
        woken = time.perf_counter() - since
    wrong = len(early) + _wrong_results(path)
    remove(folder)
    name = f"{count:,} runs"
    setting.add(f"{name} accepted", accepted, "s", "under 90 for 100,000")
    setting.add(f"{name} suspended", suspended, "s")
    setting.add("resident memory grown by", grown, "MB", "under 40")
    setting.add(f"{name} woken and ended", woken, "s")
    setting.add("woken early or with a wrong result", wrong, "runs", "0")


async def start(app: holdfast.Holdfast, numbers: range) -> None:
    for first in range(numbers.start, numbers.stop, AT_ONCE):
        some = range(first, min(first + AT_ONCE, numbers.stop))
        await asyncio.gather(*(app.with_options(id=f"s{n}").start(sleeper, n) for n in some))


async def _until(path: Path, status: str, count: int) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        while True:
            found = db.execute("SELECT count(*) FROM runs WHERE status = ?", (status,)).fetchone()[
                0
            ]
            if found == count:
                return
            if time.monotonic() > until:
                raise TimeoutError(f"{found} of {count} runs are {status}")
            await asyncio.sleep(0.1)
    finally:
        db.close()


def _wrong_results(path: Path) -> int:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        rows = db.execute("SELECT id, output FROM runs").fetchall()
    finally:
        db.close()
    return sum(output != id[1:].encode() for id, output in rows)
