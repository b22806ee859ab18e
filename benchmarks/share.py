"""`python -m benchmarks.share URL RUNS STEPS LOOP`: a worker process that does its share of a load
each time it is told to.

It says "up" when it is, and after each load how much processor time that took it, in seconds.
"""

from __future__ import annotations

import asyncio
import sys
import time

import holdfast
from benchmarks.setting import loop_factory
from benchmarks.throughput import chain
from holdfast.worker.process import calm_collector

PATIENCE_SECONDS = 120.0


async def load(app: holdfast.Holdfast, runs: int, steps: int) -> float:
    """Starts the runs at once and waits for their results; says what it took of the processor."""
    cpu = time.process_time()
    handles = await asyncio.gather(*(app.start(chain, steps) for _ in range(runs)))
    await asyncio.gather(*(handle.result() for handle in handles))
    return time.process_time() - cpu


class Share:
    """Such a process, seen from the one that started it."""

    def __init__(self, url: str, runs: int, steps: int, loop: str) -> None:
        self._command = ["-m", "benchmarks.share", url, str(runs), str(steps), loop]

    async def open(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *self._command, stdin=pipe, stdout=pipe
        )
        assert await self._said() == "up"

    async def load(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        return float(await self._said())

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def _said(self) -> str:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_SECONDS)
        return line.decode().strip()


async def _serve(url: str, runs: int, steps: int) -> None:
    app = holdfast.Holdfast(url, workflows=[chain])
    async with app:
        await (await app.start(chain, 50)).result()
        calm_collector()
        print("up", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(await load(app, runs, steps), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory(sys.argv[4])) as runner:
        runner.run(_serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
