"""Runs that end without anybody executing them: nothing of them has to unwind."""

from __future__ import annotations

from typing import Any

from holdfast.store.base import Due, Store, Suspend
from holdfast.testing.conformance.claims import crash
from holdfast.testing.conformance.given import (
    NOW,
    SECOND,
    Bell,
    append,
    claim,
    claim_ids,
    do,
    end_of,
    row,
    start,
    started_and_claimed,
    waiting,
    worker,
)
from holdfast.types import Kind, MailKind, RunRow, Status

LATER = NOW + SECOND
TOO_LATE = b"too late"


async def quarantined(store: Store, id: str, **fields: Any) -> RunRow:
    await start(store, id, **fields)
    for _ in range(5):
        await crash(store)
    found = await row(store, id)
    assert found.status is Status.QUARANTINED
    return found


async def halted(store: Store, status: Status, **fields: Any) -> RunRow:
    run = await started_and_claimed(store, status, **fields)
    await do(store, append(run, then=Suspend(None, 0, "why", status)))
    return run


class CancelledUnclaimed:
    async def test_a_run_that_was_never_claimed_is_cancelled_at_once(self, store: Store) -> None:
        for id, ready_at in {"due": NOW, "later": NOW + 60 * SECOND}.items():
            run = await start(store, id, ready_at=ready_at)
            await store.post(id, MailKind.CANCEL, "", None, LATER)
            found = await row(store, id)
            assert (found.status, found.ended_at) == (Status.CANCELLED, LATER)
            (entry,) = await store.journal(run.key)
            assert (entry.kind, entry.seq, entry.at, entry.failed) == (Kind.END, 1, LATER, True)
        await worker(store)
        assert await claim(store, now=NOW + 60 * SECOND) == []

    async def test_also_behind_another_of_its_session(self, store: Store) -> None:
        await worker(store)
        await started_and_claimed(store, "first", session="s")
        await start(store, "second", session="s")
        await start(store, "third", session="s")
        await store.post("second", MailKind.CANCEL, "", None, NOW)
        assert (await row(store, "second")).status is Status.CANCELLED
        assert await claim(store) == []  # the first still has the session
        await end_of(store, "first")
        assert await claim_ids(store) == ["third"]

    async def test_also_if_it_is_paused(self, store: Store) -> None:
        await start(store, "run")
        await store.post("run", MailKind.PAUSE, "", None, NOW)
        await store.post("run", MailKind.CANCEL, "", None, NOW)
        assert (await row(store, "run")).status is Status.CANCELLED

    async def test_also_a_quarantined_one(self, store: Store) -> None:
        run = await quarantined(store, "run")
        await store.post("run", MailKind.CANCEL, "", None, NOW)
        assert (await row(store, "run")).status is Status.CANCELLED
        last = (await store.journal(run.key))[-1]
        assert (last.kind, last.seq) == (Kind.END, 6)

    async def test_its_parent_hears_of_it(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent")
        await start(store, "child", parent=parent.key, parent_step="/c#0")
        bell = Bell(store)
        await store.post("child", MailKind.CANCEL, "", None, NOW)
        await bell.wait()
        (mail,) = await store.mail([(parent.key, 0)])
        assert (mail.kind, mail.name, mail.failed) == (MailKind.CHILD, "/c#0", True)

    async def test_a_run_that_was_claimed_unwinds(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await store.release("w1", [(run.key, run.epoch)], NOW)
        await store.post("run", MailKind.CANCEL, "", None, NOW)
        assert await claim_ids(store) == ["run"]


class Deadlines:
    async def test_a_run_that_was_never_claimed_fails_at_its_deadline(self, store: Store) -> None:
        await worker(store)
        await started_and_claimed(store, "first", session="s")
        runs: dict[str, dict[str, Any]] = {
            "due": {},
            "later": {"ready_at": NOW + 60 * SECOND},
            "behind": {"session": "s"},
            "of another worker": {"workflow": "unserved"},
        }
        for id, fields in runs.items():
            await start(store, id, deadline_at=LATER, **fields)
        assert await store.expire(LATER - 1, TOO_LATE) == 0
        assert await store.expire(LATER, TOO_LATE) == len(runs)
        for id in runs:
            found = await row(store, id)
            assert (found.status, found.output, found.ended_at) == (
                Status.FAILED,
                TOO_LATE,
                LATER,
            )
        assert (await row(store, "first")).status is Status.RUNNING

    async def test_a_quarantined_run_fails_at_its_deadline(self, store: Store) -> None:
        await quarantined(store, "run", deadline_at=LATER)
        assert await store.expire(LATER, TOO_LATE) == 1
        assert (await row(store, "run")).status is Status.FAILED

    async def test_a_paused_or_parked_run_wakes_at_its_deadline(self, store: Store) -> None:
        await worker(store)
        for status in (Status.PAUSED, Status.PARKED):
            await halted(store, status, deadline_at=LATER)
        await start(store, "waits", deadline_at=None)
        await store.post("waits", MailKind.PAUSE, "", None, NOW)
        assert await claim(store) == []
        assert await store.expire(LATER, TOO_LATE) == 2
        assert set(await claim_ids(store, now=LATER)) == {"paused", "parked"}

    async def test_a_woken_run_is_not_paused_again(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run", deadline_at=LATER)
        await do(store, append(run, then=waiting(ready_at=LATER)))
        await store.post("run", MailKind.PAUSE, "", None, NOW)
        assert await store.expire(LATER, TOO_LATE) == 1
        assert await claim_ids(store, now=LATER) == ["run"]
        assert await store.mail([(run.key, 0)]) == []

    async def test_a_halted_run_of_a_session_wakes_behind_the_others(self, store: Store) -> None:
        await worker(store)
        await halted(store, Status.PARKED, deadline_at=LATER, session="s", while_waiting="release")
        await started_and_claimed(store, "other", session="s")
        assert await store.expire(LATER, TOO_LATE) == 1
        assert await claim(store, now=LATER) == []
        await end_of(store, "other")
        assert await claim_ids(store, now=LATER) == ["parked"]

    async def test_runs_that_are_executed_or_wait_are_left_alone(self, store: Store) -> None:
        await worker(store)
        await started_and_claimed(store, "runs", deadline_at=LATER)
        waits = await started_and_claimed(store, "waits", deadline_at=LATER)
        await do(store, append(waits, then=waiting(ready_at=LATER)))
        freed = await started_and_claimed(store, "freed", deadline_at=LATER)
        await store.release("w1", [(freed.key, freed.epoch)], NOW)
        assert (await store.next_due(["research"])).deadline is None
        assert await store.expire(LATER, TOO_LATE) == 0
        assert (await row(store, "waits")).status is Status.WAITING

    async def test_a_run_that_halts_on_its_way_out_has_no_deadline(self, store: Store) -> None:
        await worker(store)
        for id, status in {"a": Status.PARKED, "b": Status.WAITING}.items():
            run = await started_and_claimed(store, id, deadline_at=LATER)
            await do(store, append(run, then=Suspend(None, 0, "why", status, unwinding=True)))
        await store.post("b", MailKind.PAUSE, "", None, LATER)
        assert await store.expire(LATER, TOO_LATE) == 0
        assert (await row(store, "a")).deadline_at is None

    async def test_the_next_deadline_is_told(self, store: Store) -> None:
        assert await store.next_due([]) == Due(None, None, None)
        await start(store, "far", deadline_at=LATER + 5, ready_at=LATER)
        await start(store, "near", deadline_at=LATER, ready_at=LATER)
        due = await store.next_due([])
        assert (due, due.first) == (Due(None, None, LATER), LATER)
        await store.expire(LATER, TOO_LATE)
        assert (await store.next_due([])).deadline == LATER + 5

    async def test_a_few_at_a_time(self, store: Store) -> None:
        for n in range(5):
            await start(store, f"run-{n}", deadline_at=LATER + n)
        assert await store.expire(LATER + 9, TOO_LATE, limit=2) == 2
        assert (await store.next_due([])).deadline == LATER + 2
        assert await store.expire(LATER + 9, TOO_LATE) == 3

    async def test_a_parent_hears_that_its_child_was_too_late(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent")
        await start(store, "child", parent=parent.key, parent_step="/c#0", deadline_at=LATER)
        await store.expire(LATER, TOO_LATE)
        (mail,) = await store.mail([(parent.key, 0)])
        assert (mail.kind, mail.payload, mail.failed) == (MailKind.CHILD, TOO_LATE, True)
