"""Recovery of a long journal, and what a step costs when the journal before it is long."""

from __future__ import annotations

import asyncio
import itertools
import time

import holdfast
from benchmarks.figures import middle
from benchmarks.setting import PAYLOAD, Setting, remove

RECORDED = 5000
WINDOW = 300

marks: dict[str, float] = {}
live = asyncio.Event()
walls: list[float] = []
cpus: list[float] = []


def _mark(name: str) -> None:
    marks[name] = time.perf_counter()


def _note_times() -> None:
    walls.append(time.perf_counter())
    cpus.append(time.process_time())


@holdfast.step
async def work(n: int) -> str:
    return PAYLOAD


@holdfast.step
async def first_live() -> None:
    marks["live"] = time.perf_counter()
    live.set()
    await asyncio.sleep(3600)  # until the worker plays dead


@holdfast.workflow
async def long(steps: int) -> int:
    _mark("body")
    for n in range(steps):
        await work(n)
    _mark("replayed")
    await first_live()
    return steps


@holdfast.workflow
async def growing(steps: int) -> int:
    for n in range(steps):
        _note_times()
        await work(n)
    return steps


async def replay(setting: Setting) -> None:
    await _recovery(setting)
    await _growth(setting)


async def _recovery(setting: Setting) -> None:
    recorded = 1000 if setting.quick else RECORDED
    folder = setting.fresh()
    url = f"sqlite:///{folder}/bench.db"
    app = holdfast.Holdfast(url, workflows=[long])
    await app.open()
    await app.with_options(id="long").start(long, recorded)
    await live.wait()
    bodies: list[float] = []
    whole: list[float] = []
    for _ in range(3 if setting.quick else 5):
        assert app.worker is not None
        await app.worker.crash()
        await app.store.close()
        live.clear()
        app = holdfast.Holdfast(url, workflows=[long])
        since = time.perf_counter()
        await app.open()
        await live.wait()
        bodies.append(recorded / (marks["replayed"] - marks["body"]))
        whole.append(recorded / (marks["live"] - since))
    assert app.worker is not None
    await app.worker.crash()
    await app.store.close()
    remove(folder)
    setting.add("recorded steps, body alone", middle(bodies), "steps/s", "at least 30,000")
    setting.add(
        "from opening the app to the next step", middle(whole), "steps/s", "at least 30,000"
    )


async def _growth(setting: Setting) -> None:
    lengths = (10, 300, 2000) if setting.quick else (10, 1000, 20_000)
    folder = setting.fresh()
    app = holdfast.Holdfast(f"sqlite:///{folder}/bench.db", workflows=[growing])
    async with app:
        await (await app.start(growing, 50)).result()
        walls.clear()
        cpus.clear()
        await (await app.start(growing, lengths[-1] + WINDOW + 1)).result()
    remove(folder)
    for length in lengths:
        window = slice(length, length + WINDOW + 1)
        steps = [after - before for before, after in itertools.pairwise(walls[window])]
        cpu = cpus[length + WINDOW] - cpus[length]
        setting.add(f"a step after {length:,}, median", middle(steps) * 1e6, "µs", "does not grow")
        setting.add(f"a step after {length:,}, CPU", cpu * 1e6 / WINDOW, "µs", "does not grow")
