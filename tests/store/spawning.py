"""Processes that tests of the stores start, tell things and hear of."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.store.base import Store
from holdfast.testing.conformance.given import SIGNAL_SECONDS_MAX
from holdfast.types import WorkerRow

CHILDREN = Path(__file__).parent / "children.py"
Spawn = Callable[..., "subprocess.Popen[str]"]


@contextmanager
def spawning(url: str) -> Iterator[Spawn]:
    """A way to start the children's functions on a store; ends them all."""
    started: list[subprocess.Popen[str]] = []

    def run(what: str, *args: object) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, str(CHILDREN), what, url, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        started.append(child)
        return child

    try:
        yield run
    finally:
        for child in started:
            child.kill()
            child.communicate()


def line(child: subprocess.Popen[str]) -> list[str]:
    assert child.stdout is not None
    return child.stdout.readline().split()


def tell(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")


async def only_worker(store: Store) -> WorkerRow:
    (found,) = await store.workers()
    return found


async def watched(store: Store, found: WorkerRow) -> asyncio.Event:
    died = asyncio.Event()
    store.watch(found, died.set)
    return died


async def come(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), SIGNAL_SECONDS_MAX)
