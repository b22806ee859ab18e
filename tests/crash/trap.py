"""Signals a worker sends itself at an exact place of a commit, where no other process could aim.

before: the batch is made up, the transaction has not begun.
inside: everything is written, COMMIT has not been said.
after: it is committed, and the worker does not know yet.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.store import sqlite_commit
from holdfast.store.base import Append, Operation, Outcome
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.sqlite_lanes import Db


def arm(where: str, key: str, number: str) -> None:
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
        print("sprung", flush=True)
        os.kill(os.getpid(), kind)

    if where == "inside":
        sqlite_commit.commit = _inside(sqlite_commit.commit, caught, spring)
    else:
        SQLiteStore.commit = _around(where, SQLiteStore.commit, caught, spring)  # type: ignore[method-assign]


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
    commit: Callable[[SQLiteStore, Sequence[Operation]], Any],
    caught: Callable[[Sequence[Operation]], bool],
    spring: Callable[[], None],
) -> Any:
    async def trapped(store: SQLiteStore, operations: Sequence[Operation]) -> list[Outcome]:
        springs = caught(operations)
        if springs and where == "before":
            spring()
        outcomes: list[Outcome] = await commit(store, operations)
        if springs and where == "after":
            spring()
        return outcomes

    return trapped
