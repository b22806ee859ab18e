"""Short ways to bring a store into a state that a test starts from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.errors import LeaseLost
from holdfast.store.base import (
    Append,
    Appended,
    Claimed,
    ContinueAs,
    End,
    Leasekeeper,
    Refused,
    Start,
    Started,
    Store,
    Suspend,
)
from holdfast.types import Entry, Kind, NewRun, PromiseRow, RunKey, RunRow, Status, WorkerRow

NOW = 1_750_000_000_000_000
"""Some moment of 2025; tests count from here."""

SECOND = 1_000_000
WORKFLOW = "research"
SIGNAL_SECONDS_MAX = 60.0


def new_run(id: str, **fields: Any) -> NewRun:
    values: dict[str, Any] = {
        "workflow": WORKFLOW,
        "input": b'["input"]',
        "digest": b"digest",
        "created_at": NOW,
        "ready_at": NOW,
        "incarnation": f"incarnation of {id}",
    }
    return NewRun(id=id, **{**values, **fields})


async def start(store: Store, id: str, **fields: Any) -> RunRow:
    """Accepts a run that nobody claims yet."""
    (outcome,) = await store.commit([Start(new_run(id, **fields))])
    assert isinstance(outcome, Started), outcome
    assert outcome.created and not outcome.claimed
    return outcome.row


async def worker(store: Store, id: str = "w1", lease_seconds: float = 3600.0) -> Leasekeeper:
    """Registers a worker of this process. A lease of 0 seconds has run out at once."""
    return await store.register(WorkerRow(id, "", 0, "", NOW, lease_seconds))


async def claim(
    store: Store,
    by: str = "w1",
    *,
    workflows: Sequence[str] = (WORKFLOW,),
    now: int = NOW,
    limit: int = 100,
    alone: bool = False,
) -> list[Claimed]:
    return await store.claim(by, workflows, now, limit, alone=alone)


async def claim_ids(store: Store, by: str = "w1", **options: Any) -> list[str]:
    return [claimed.row.id for claimed in await claim(store, by, **options)]


async def started_and_claimed(store: Store, id: str, by: str = "w1", **fields: Any) -> RunRow:
    """A run that a worker owns from its start."""
    (outcome,) = await store.commit([Start(new_run(id, **fields), claim_for=by)])
    assert isinstance(outcome, Started), outcome
    assert outcome.claimed
    return outcome.row


def step(seq: int, key: str = "", **fields: Any) -> Entry:
    return Entry(seq, Kind.STEP, key or f"/step#{seq}", NOW, **fields)


def append(
    run: RunRow,
    *entries: Entry,
    then: Suspend | End | ContinueAs | None = None,
    epoch: int | None = None,
    at: int = NOW,
    promises: Sequence[PromiseRow] = (),
) -> Append:
    mine = run.epoch if epoch is None else epoch
    return Append(run.key, mine, list(entries), at, then, list(promises))


def waiting(
    reason: str = "approval", *, ready_at: int | None = None, mail_seen: int = 0
) -> Suspend:
    return Suspend(ready_at, mail_seen, reason)


async def suspend(store: Store, run: RunRow, seq: int, **options: Any) -> None:
    """Appends one entry and leaves memory."""
    outcome = await do(store, append(run, step(seq), then=waiting(**options)))
    assert isinstance(outcome, Appended) and outcome.suspended, outcome


async def end(
    store: Store,
    run: RunRow,
    seq: int,
    status: Status = Status.COMPLETED,
    output: bytes | None = b'"result"',
    at: int = NOW,
) -> None:
    entry = Entry(seq, Kind.END, "", at, failed=status is not Status.COMPLETED, output=output)
    outcome = await do(store, append(run, entry, then=End(status, output), at=at))
    assert isinstance(outcome, Appended), outcome


async def end_of(store: Store, id: str) -> None:
    """Ends a run that was claimed, wherever its journal stands."""
    run = await row(store, id)
    await end(store, run, len(await store.journal(run.key)) + 1)


async def do(store: Store, operation: Append) -> Appended | Refused:
    (outcome,) = await store.commit([operation])
    assert isinstance(outcome, Appended | Refused)
    return outcome


def promise(run: RunRow, name: str) -> PromiseRow:
    return PromiseRow(run.key, name, f"/promise:{name}#0", "promise", "str", b"ask", NOW)


async def row(store: Store, id: str) -> RunRow:
    found = await store.get(id)
    assert found is not None, f"there is no run {id!r}"
    return found


async def keys(store: Store, run: RunKey) -> list[tuple[int, str]]:
    """The journal in short: the claims by their worker's id, everything else by its key."""
    entries = await store.journal(run)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1)), entries
    return [(entry.seq, entry.key) for entry in entries]


def assert_lease_lost(outcome: object) -> None:
    assert isinstance(outcome, Refused), outcome
    assert isinstance(outcome.error, LeaseLost), outcome.error


class Bell:
    """Counts the rings of a store's `listen` and lets a test wait for the next one."""

    def __init__(self, store: Store) -> None:
        self.rings = 0
        self._rang = asyncio.Event()
        self.stop: Callable[[], None] = store.listen(self._ring)

    def _ring(self) -> None:
        self.rings += 1
        self._rang.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self._rang.wait(), SIGNAL_SECONDS_MAX)
        self._rang.clear()
