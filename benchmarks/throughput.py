"""Steps per second: of one run whose steps follow one another, and of many runs at once."""

from __future__ import annotations

import asyncio
import contextlib
import time

import holdfast
from benchmarks.figures import middle, percentile
from benchmarks.setting import PAYLOAD, Setting, raw_rows_per_second, remove
from holdfast.worker.process import calm_collector

TICK_SECONDS = 0.001


@holdfast.step
async def work(n: int) -> str:
    return PAYLOAD


@holdfast.workflow
async def chain(steps: int) -> int:
    for n in range(steps):
        await work(n)
    return steps


async def sequential(setting: Setting) -> None:
    """One run of 1,000 steps that return 1 KB each, between measurements of the raw limit."""
    steps, rounds, commits = (300, 2, 300) if setting.quick else (1000, 5, 600)
    rates: list[float] = []
    limits: list[float] = []
    late: list[float] = []
    for _ in range(rounds):
        folder = setting.fresh()
        before = raw_rows_per_second(folder, commits=commits, rows=1)
        app = holdfast.Holdfast(f"sqlite:///{folder}/bench.db", workflows=[chain])
        async with app:
            await (await app.start(chain, 50)).result()
            ticker = asyncio.create_task(_tick(late))
            since = time.perf_counter()
            await (await app.start(chain, steps)).result()
            rates.append(steps / (time.perf_counter() - since))
            ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticker
        after = raw_rows_per_second(folder, commits=commits, rows=1)
        limits.append((before + after) / 2)
        remove(folder)
    ratio = middle(rate / limit for rate, limit in zip(rates, limits, strict=True))
    setting.add("ratio to raw commits of one row", ratio, "", "at least 0.6")
    setting.add("durable steps", middle(rates), "steps/s")
    setting.add("raw durable commits", middle(limits), "commits/s")
    setting.add("p99 delay of another task", percentile(late, 99) * 1e3, "ms", "small")
    setting.add("maximum delay of another task", max(late) * 1e3, "ms")


async def _tick(late: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + TICK_SECONDS
        await asyncio.sleep(TICK_SECONDS)
        late.append(max(0.0, loop.time() - due))


async def parallel(setting: Setting) -> None:
    """2,000 runs of 10 steps each in one worker, between measurements of the raw limit.

    First as in an app that is its own worker, where Python's garbage collector is the app's own
    business; then as in a process of `holdfast worker`, which calms it.
    """
    runs, rounds, commits = (300, 2, 50) if setting.quick else (2000, 3, 200)
    await _many(setting, runs, rounds, commits, "in an app")
    calm_collector()
    await _many(setting, runs, rounds, commits, "")


async def _many(setting: Setting, runs: int, rounds: int, commits: int, where: str) -> None:
    steps = 10
    rates: list[float] = []
    limits: list[float] = []
    micros: list[float] = []
    for _ in range(rounds):
        folder = setting.fresh()
        before = raw_rows_per_second(folder, commits=commits, rows=100)
        app = holdfast.Holdfast(f"sqlite:///{folder}/bench.db", workflows=[chain])
        async with app:
            await (await app.start(chain, 50)).result()
            cpu, since = time.process_time(), time.perf_counter()
            handles = await asyncio.gather(*(app.start(chain, steps) for _ in range(runs)))
            await asyncio.gather(*(handle.result() for handle in handles))
            rates.append(runs * steps / (time.perf_counter() - since))
            micros.append((time.process_time() - cpu) * 1e6 / (runs * steps))
        after = raw_rows_per_second(folder, commits=commits, rows=100)
        limits.append((before + after) / 2)
        remove(folder)
    ratio = middle(rate / limit for rate, limit in zip(rates, limits, strict=True))
    if where:
        setting.add(f"ratio to raw rows, {where}", ratio, "")
        setting.add(f"CPU per step, {where}", middle(micros), "µs")
        return
    setting.add("ratio to raw rows in commits of 100", ratio, "", "at least 0.1")
    setting.add("durable steps", middle(rates), "steps/s")
    setting.add("raw durable rows", middle(limits), "rows/s")
    setting.add("CPU per step, starts and results included", middle(micros), "µs", "at most 110")
    setting.add("CPU per step, best round", min(micros), "µs")
