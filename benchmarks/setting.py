"""Where a benchmark runs: its folder, its size, and what the bare machine does there."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.figures import Figure

PAYLOAD = "x" * 1022  # 1,024 bytes as JSON


@dataclass(slots=True, kw_only=True)
class Setting:
    bench: str
    folder: Path  # on a real disk: what is measured is mostly the cost of being durable
    quick: bool
    loop: str
    figures: list[Figure] = field(default_factory=list)

    def add(self, what: str, value: float, unit: str, target: str = "") -> None:
        figure = Figure(
            bench=self.bench, what=what, value=value, unit=unit, target=target, loop=self.loop
        )
        self.figures.append(figure)

    def fresh(self) -> Path:
        """A new empty folder."""
        path = self.folder / f"{self.bench}-{uuid.uuid4().hex[:8]}"
        path.mkdir(parents=True)
        return path


def loop_factory(loop: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if loop != "uvloop":
        return None
    import uvloop  # an optional dependency

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def raw_rows_per_second(folder: Path, *, commits: int, rows: int) -> float:
    """What SQLite alone does, with the same durability: rows of 1 KB, so many to a commit."""
    path = folder / f"raw-{uuid.uuid4().hex[:8]}.db"
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, payload BLOB)")
        batch = [(PAYLOAD.encode(),)] * rows
        since = time.perf_counter()
        for _ in range(commits):
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO t (payload) VALUES (?)", batch)
            db.execute("COMMIT")
        return commits * rows / (time.perf_counter() - since)
    finally:
        db.close()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)


def resident_mb() -> float:
    """What this process holds in memory now."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        import resource  # not on Windows, and only the peak: better than nothing

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
