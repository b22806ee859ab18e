"""A commit carries no more than a store can take in one statement, however much there is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

import holdfast
from holdfast.engine import commit
from holdfast.store.base import Append, End, Operation, Outcome, Start
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.environment import Environment

BYTES = 1000
RUNS = 6


@holdfast.step
async def long_text(text: str) -> str:
    return text * BYTES


@holdfast.workflow
async def together(text: str) -> str:
    return "".join(await asyncio.gather(*(long_text(text) for _ in range(RUNS))))[:BYTES]


def carried(operation: Operation) -> list[int]:
    if isinstance(operation, Start):
        return [len(operation.run.input)]
    assert isinstance(operation, Append)
    found = [len(entry.output or b"") for entry in operation.entries]
    if isinstance(operation.then, End):
        found.append(len(operation.then.output or b""))
    return found


async def test_a_batch_ends_with_what_fills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "BATCH_BYTES_MAX", BYTES)
    batches: list[list[int]] = []
    write = SQLiteStore.commit

    async def noted(
        self: SQLiteStore, operations: Sequence[Operation], *, request: str = ""
    ) -> list[Outcome]:
        batches.append([size for op in operations for size in carried(op) if size >= BYTES])
        return await write(self, operations, request=request)

    monkeypatch.setattr(SQLiteStore, "commit", noted)
    async with Environment([together]) as env:
        wide = "x" * BYTES
        starts = (env.app.start(together, text) for text in [wide, *"abcdef"])
        runs = await asyncio.gather(*starts)
        results = await asyncio.gather(*(run.result() for run in runs))
    assert results == [wide, *(text * BYTES for text in "abcdef")]
    assert max(map(len, batches)) <= 2  # a run's last entry, and its result
    assert sum(map(len, batches)) == 1 + len(results) * (RUNS + 1)
