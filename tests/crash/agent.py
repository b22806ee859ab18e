"""The worker process that crash tests kill: `python -m tests.crash.agent URL OBSERVER OPTIONS`.

Options (JSON): `lease`, `hang`, `memory_wait` in seconds; `concurrency`; `children`: fork some that
keep what they inherit; `trap`, `tick_trap`, `tick_gate`, `claim_trap`: see trap.py. A lease that
is not given outlasts the test: neither a busy processor nor a disk that stalls ends it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import uuid
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from typing import Any

import holdfast
from holdfast.engine.context import scope
from holdfast.types import RunRow
from tests.crash import trap

OBSERVER = sys.argv[2] if __name__ == "__main__" else ""

LEASE_SECONDS = 600.0

BEGAN: dict[tuple[str, str], float] = {}
"""When the last try at each step began."""


def began(row: RunRow, key: str, digest: bytes | None) -> None:
    BEGAN[row.id, key] = time.monotonic()


async def observed(name: str) -> tuple[str, str]:
    """Does the effect of a step."""
    token = uuid.uuid4().hex
    return token, await ask_observer(name, holdfast.idempotency_key(), token)


async def ask_observer(name: str, key: str = "", token: str = "") -> str:
    """Tells the observer, and waits for the answer."""
    where = scope()
    assert where is not None
    row = where.frame.run.row
    began = BEGAN.get((row.id, where.frame.key), 0.0)
    return await ask(name, run=row.id, epoch=row.epoch, began=began, key=key, token=token)


async def ask(name: str, **about: Any) -> str:
    line = {"run": "", "epoch": 0, "began": 0.0, "key": "", "token": "", **about}
    line |= {"name": name, "pid": os.getpid()}
    reader, writer = await asyncio.open_unix_connection(OBSERVER)
    writer.write((json.dumps(line) + "\n").encode())
    answer = (await reader.readline()).decode().strip()
    writer.close()
    return answer


@holdfast.step
async def effect(name: str) -> str:
    return (await observed(name))[0]


@holdfast.step
def effect_in_thread(name: str) -> str:
    return asyncio.run(observed(name))[0]


@holdfast.step
async def tool(name: str) -> str:
    """A step with steps in it, one after the other and side by side."""
    await effect(f"{name}.1")
    await asyncio.gather(effect(f"{name}.2"), effect(f"{name}.3"))
    return (await observed(name))[0]


@holdfast.workflow
async def job(n: int) -> int:
    await effect("first")
    await asyncio.gather(*(effect(f"side {i}") for i in range(3)), tool("tool"))
    await asyncio.to_thread(effect_in_thread, "thread")
    await effect("asking")
    answer = await holdfast.promise("answer", int)
    await effect("last")
    return n + answer


JOB = ["first", "side 0", "side 1", "side 2", "tool.1", "tool.2", "tool.3", "tool"]
JOB += ["thread", "asking", "last"]
"""The effects of one `job`."""


@holdfast.workflow
async def line(names: list[str]) -> list[str]:
    """Effects one after the other."""
    return [await effect(name) for name in names]


@holdfast.workflow
async def late(name: str) -> str:
    """A step that is asked for when plain I/O of the body is done: nothing is written before it."""
    await ask_observer("gate")
    step = asyncio.create_task(effect(name))
    await ask_observer("asked for")
    return await step


@holdfast.step
async def stuck(name: str) -> str:
    """Blocks the whole event loop, if the observer says so."""
    token, answer = await observed(name)
    if answer == "hang":
        threading.Event().wait()  # that is the point
    return token


@holdfast.workflow
async def hanging(name: str) -> str:
    return await stuck(name)


@holdfast.step
async def deadly(name: str) -> str:
    """Kills its worker, unless the observer lets it live."""
    token, answer = await observed(name)
    if answer != "live":
        os.kill(os.getpid(), signal.SIGKILL)
    return token


@holdfast.workflow
async def poison(name: str) -> str:
    return await deadly(name)


class TooMany(Exception):
    retry_after = 3600


@holdfast.step(limit=holdfast.Limit("provider", per_second=1000))
async def limited(name: str) -> str:
    """Is told to come back in an hour, if the observer says so."""
    token, answer = await observed(name)
    if answer == "busy":
        raise TooMany
    return token


@holdfast.workflow
async def calling(name: str) -> str:
    return await limited(name)


WORKFLOWS: list[Any] = [job, line, late, hanging, poison, calling]


def client(url: str) -> holdfast.Holdfast:
    """An app that serves nothing itself."""
    return holdfast.Holdfast(url, workflows=WORKFLOWS, worker=False)


def fork_children() -> ProcessPoolExecutor:
    """Children that go on with what they inherited when their parent is killed."""
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
    pool.submit(abs, 1).result()
    for pid in pool._processes:
        print("child", pid, flush=True)
    child = os.fork()
    if not child:
        while True:
            signal.pause()
    print("child", child, flush=True)
    return pool


async def serve(url: str, options: dict[str, Any]) -> None:
    seconds: dict[str, Any] = {
        name: timedelta(seconds=value)
        for name, value in {"lease": LEASE_SECONDS, **options}.items()
        if name in ("lease", "hang", "memory_wait")
    }
    app = holdfast.Holdfast(
        url,
        workflows=WORKFLOWS,
        worker_options=holdfast.WorkerOptions(
            **seconds, concurrency=options.get("concurrency", 1000), on_step=began
        ),
    )
    async with app:
        pool = fork_children() if options.get("children") else None
        print("serving", flush=True)
        # The test holds the other end: when it is gone, this process must not stay behind.
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        await reader.read()
        os._exit(0 if pool is None else 1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    given = json.loads(sys.argv[3])
    if "trap" in given:
        trap.arm(sys.argv[1], **given["trap"])
    if "tick_trap" in given:
        trap.arm_tick(sys.argv[1], **given["tick_trap"])
    if "tick_gate" in given:
        trap.arm_tick_gate(sys.argv[1], given["tick_gate"], lambda: ask(trap.TICK_GATE))
    if "claim_trap" in given:
        trap.arm_claim(sys.argv[1], **given["claim_trap"])
    asyncio.run(serve(sys.argv[1], given))
