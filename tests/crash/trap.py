"""Signals a worker sends itself at an exact place of a commit, where no other process could aim.

before: the batch is made up, nothing of it has been sent.
inside: everything is written, COMMIT has not been said. Only SQLite's commit has such a place in
    the worker's own process.
after: it is committed, and the worker does not know yet.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from holdfast.store import open_store, sqlite_commit
from holdfast.store.base import Append, Operation, Outcome
from holdfast.store.sqlite_lanes import Db
from tests.crash.fleet import nobody_writes

TICK_GATE = "tick gate"


def arm(url: str, where: str, key: str, number: str) -> None:
    """Springs once: at the first batch with an entry whose key has `key` in it."""
    kind = getattr(signal, number)
    sprung = False

    def caught(operations: Sequence[Operation]) -> bool:
        nonlocal sprung
        keys = [e.key for o in operations if isinstance(o, Append) for e in o.entries]
        if sprung or not any(key in found for found in keys):
            return False
        sprung = True
        return True

    def spring() -> None:
        if where != "inside" and kind == signal.SIGSTOP:
            leave_transactions(url)
        print("sprung", flush=True)
        os.kill(os.getpid(), kind)

    store: Any = type(open_store(url))
    if where == "inside":
        sqlite_commit.commit = _inside(sqlite_commit.commit, caught, spring)
    else:
        store.commit = _around(where, store.commit, caught, spring)


def arm_tick(url: str, where: str, nth: int, number: str) -> None:
    """Springs before or after the commit of the nth tick that this worker makes, or tries to."""
    store: Any = type(open_store(url))
    tick = store.tick
    calls = 0

    def spring(place: str) -> None:
        if calls == nth and place == where:
            print("sprung", flush=True)
            os.kill(os.getpid(), getattr(signal, number))

    async def trapped(self: object, *args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        spring("before")
        ticked = await tick(self, *args, **options)
        spring("after")
        return ticked

    store.tick = trapped


def arm_tick_gate(url: str, nth: int, ask: Callable[[], Awaitable[object]]) -> None:
    """Asks before the nth tick that this worker makes, or tries to, and waits for the answer."""
    store: Any = type(open_store(url))
    tick = store.tick
    calls = 0

    async def gated(self: object, *args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            await ask()
        return await tick(self, *args, **options)

    store.tick = gated


def leave_transactions(url: str) -> None:
    """Returns when none of this process's threads is inside a transaction on a file: who is
    stopped in one is not taken for dead, but ended."""
    with nobody_writes(url):
        pass


def arm_claim(url: str, until: str) -> None:
    """Stops at the first claim that gets something, which is heard of only when the registration is
    lost, or there is a new one."""
    store: Any = type(open_store(url))
    claim, register = store.claim, store.register
    sprung = False
    goes_on = asyncio.Event()

    async def trapped(self: object, *args: Any, **options: Any) -> Any:
        nonlocal sprung
        claimed = await claim(self, *args, **options)
        if claimed and not sprung:
            sprung = True
            leave_transactions(url)
            print("sprung", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            await goes_on.wait()
            print("heard of it", flush=True)
        return claimed

    async def registered(self: object, *args: Any) -> Any:
        keeper = await register(self, *args)
        if sprung:
            goes_on.set()
        return keeper

    def lost(record: logging.LogRecord) -> bool:
        if "lost its lease" in record.msg:
            goes_on.set()
        return True

    store.claim = trapped
    if until == "registered":
        store.register = registered
    else:
        logging.getLogger("holdfast").addFilter(lost)


def _inside(
    commit: Callable[[Db, Sequence[Operation]], list[Outcome]],
    caught: Callable[[Sequence[Operation]], bool],
    spring: Callable[[], None],
) -> Any:
    def trapped(db: Db, operations: Sequence[Operation]) -> list[Outcome]:
        outcomes = commit(db, operations)
        if caught(operations):
            spring()
        return outcomes

    return trapped


def _around(
    where: str,
    commit: Callable[..., Any],
    caught: Callable[[Sequence[Operation]], bool],
    spring: Callable[[], None],
) -> Any:
    async def trapped(
        store: object, operations: Sequence[Operation], **options: Any
    ) -> list[Outcome]:
        springs = caught(operations)
        if springs and where == "before":
            spring()
        outcomes: list[Outcome] = await commit(store, operations, **options)
        if springs and where == "after":
            spring()
        return outcomes

    return trapped
