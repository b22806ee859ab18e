"""SIGKILL of a worker that has a living peer: how long until the run's next step starts there."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time

import holdfast
from benchmarks.figures import middle
from benchmarks.setting import Setting, remove

STEPS_BEFORE_KILL = 5
PATIENCE_SECONDS = 30.0


@holdfast.step
async def beat(n: int) -> int:
    # The monotonic clock is the same for all processes of a machine.
    print(json.dumps({"n": n, "pid": os.getpid(), "at": time.monotonic()}), flush=True)
    await asyncio.sleep(0.005)
    return n


@holdfast.workflow
async def heart(beats: int) -> int:
    for n in range(beats):
        await beat(n)
    return beats


class Workers:
    """Two worker processes, and what their steps print."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._all: dict[int, asyncio.subprocess.Process] = {}
        self._readers: set[asyncio.Task[None]] = set()
        self.lines: asyncio.Queue[dict[str, float]] = asyncio.Queue()
        self._up: asyncio.Queue[int] = asyncio.Queue()

    async def add(self) -> None:
        made = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks.takeover",
            self._url,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self._all[made.pid] = made
        reader = asyncio.create_task(self._read(made))
        self._readers.add(reader)
        await asyncio.wait_for(self._up.get(), PATIENCE_SECONDS)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if line.strip() == b"up":
                self._up.put_nowait(process.pid)
            else:
                self.lines.put_nowait(json.loads(line))

    async def next(self) -> dict[str, float]:
        return await asyncio.wait_for(self.lines.get(), PATIENCE_SECONDS)

    async def kill(self, pid: int) -> float:
        process = self._all.pop(pid)
        at = time.monotonic()
        process.send_signal(signal.SIGKILL)
        await process.wait()
        return at

    async def close(self) -> None:
        for pid in list(self._all):
            await self.kill(pid)
        await asyncio.gather(*self._readers)


async def takeover(setting: Setting) -> None:
    trials = 5 if setting.quick else 20
    folder = setting.fresh()
    await measure(setting, f"sqlite:///{folder}/bench.db", trials)
    remove(folder)


async def measure(setting: Setting, url: str, trials: int) -> None:
    app = holdfast.Holdfast(url, workflows=[heart], worker=False)
    workers = Workers(url)
    delays: list[float] = []
    async with app:
        await workers.add()
        await workers.add()
        await app.start(heart, 1_000_000)
        for _ in range(trials):
            delays.append(await _trial(workers))
            await workers.add()
        await workers.close()
    milliseconds = [delay * 1e3 for delay in delays]
    setting.add("kill to next step, median", middle(milliseconds), "ms", "under 100")
    setting.add("kill to next step, maximum", max(milliseconds), "ms")
    setting.add(f"trials that went on, of {trials}", len(delays), "", f"{trials}")


async def _trial(workers: Workers) -> float:
    while not workers.lines.empty():
        workers.lines.get_nowait()
    for _ in range(STEPS_BEFORE_KILL):
        line = await workers.next()
    owner = int(line["pid"])
    at = await workers.kill(owner)
    while (line := await workers.next())["pid"] == owner:
        pass  # what it still had printed
    return line["at"] - at


async def _serve(url: str) -> None:
    app = holdfast.Holdfast(url, workflows=[heart])
    async with app:
        print("up", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
