"""Who gets which run, and when: queue, priorities, timers, suspects."""

from __future__ import annotations

import pytest

from holdfast.errors import LeaseLost
from holdfast.store.base import Appended, Leasekeeper, Reaped, Start, Store
from holdfast.testing.conformance.given import (
    NOW,
    SECOND,
    append,
    claim,
    claim_ids,
    do,
    end,
    keys,
    new_run,
    row,
    start,
    started_and_claimed,
    step,
    suspend,
    waiting,
    worker,
)
from holdfast.types import Kind, RunRow, Status


class Claiming:
    async def test_a_claim_is_an_entry_of_the_journal(self, store: Store) -> None:
        await worker(store)
        run = await start(store, "run")
        (claimed,) = await claim(store, now=NOW + 7)
        assert claimed.seq == 1
        (entry,) = await store.journal(run.key)
        assert (entry.kind, entry.key, entry.epoch) == (Kind.CLAIM, "w1", 1)
        assert entry.at == NOW + 7
        found = await row(store, "run")
        assert found == claimed.row
        assert (found.status, found.owner, found.ready_at) == (Status.RUNNING, "w1", None)

    async def test_a_run_is_claimed_once(self, store: Store) -> None:
        await worker(store, "w1")
        await worker(store, "w2")
        for n in range(5):
            await start(store, f"run-{n}")
        first = await claim_ids(store, "w1", limit=3)
        second = await claim_ids(store, "w2")
        assert len(first) == 3
        assert sorted(first + second) == [f"run-{n}" for n in range(5)]
        assert await claim(store) == []

    async def test_high_priority_goes_first_then_the_longest_ready(self, store: Store) -> None:
        await worker(store)
        for id, priority, ready_at in [
            ("late", 0, NOW - 1),
            ("early", 0, NOW - 2),
            ("urgent", 5, NOW),
            ("low", -1, NOW - 9),
        ]:
            await start(store, id, priority=priority, ready_at=ready_at)
        in_order = [await claim_ids(store, limit=1) for _ in range(4)]
        assert in_order == [["urgent"], ["early"], ["late"], ["low"]]

    async def test_many_are_claimed_in_the_same_order(self, store: Store) -> None:
        await worker(store)
        for n in range(10):
            await start(store, f"run-{n}", priority=n % 3, ready_at=NOW - n)
        ids = await claim_ids(store, limit=4)
        assert ids == ["run-8", "run-5", "run-2", "run-7"]

    async def test_only_workflows_that_are_served_are_claimed(self, store: Store) -> None:
        await worker(store)
        await start(store, "mine", workflow="mine")
        await start(store, "other", workflow="other")
        assert await claim_ids(store, workflows=["mine", "absent"]) == ["mine"]
        assert await claim(store, workflows=[]) == []
        assert await store.next_ready(["mine"]) is None
        assert await store.next_ready(["mine", "other"]) == NOW

    async def test_runs_are_claimed_when_they_are_due_and_no_sooner(self, store: Store) -> None:
        await worker(store)
        await start(store, "later", ready_at=NOW + SECOND)
        await start(store, "sooner", ready_at=NOW + SECOND - 1)
        assert await claim(store) == []
        assert await store.next_ready(["research"]) == NOW + SECOND - 1
        assert await claim_ids(store, now=NOW + SECOND) == ["sooner", "later"]
        assert await store.next_ready(["research"]) is None

    async def test_the_epoch_rises_and_the_places_stay_dense(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await suspend(store, run, 2, ready_at=NOW)
        (claimed,) = await claim(store)
        assert (claimed.row.epoch, claimed.seq) == (2, 3)
        assert await do(store, append(claimed.row, step(4))) == Appended()
        assert await keys(store, run.key) == [(1, "w1"), (2, "/step#2"), (3, "w1"), (4, "/step#4")]

    async def test_a_worker_that_is_not_registered_claims_nothing(self, store: Store) -> None:
        """Nobody would ever reap it, so its runs would be lost."""
        await start(store, "run")
        with pytest.raises(LeaseLost):
            await claim(store, "ghost")
        assert (await row(store, "run")).status is Status.PENDING

    async def test_released_runs_are_claimed_at_once_and_no_strike_is_counted(
        self, store: Store
    ) -> None:
        await worker(store, "w1")
        await worker(store, "w2")
        run = await started_and_claimed(store, "run")
        assert await store.release("w1", [(run.key, run.epoch)], NOW) == 1
        (claimed,) = await claim(store, "w2")
        assert (claimed.row.strikes, claimed.row.epoch) == (0, 2)

    async def test_a_workers_runs_are_those_it_claimed_and_has_not_let_go(
        self, store: Store
    ) -> None:
        await worker(store, "w1")
        await worker(store, "w2")
        one, two = [await started_and_claimed(store, id, by="w1") for id in ("one", "two")]
        await started_and_claimed(store, "other", by="w2")
        assert await store.owned("w1") == [(one.key, one.epoch), (two.key, two.epoch)]
        await end(store, two, 2)
        assert await store.owned("w1") == [(one.key, one.epoch)]
        assert await store.owned("nobody") == []

    async def test_only_its_owner_at_its_epoch_releases_a_run(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        assert await store.release("w2", [(run.key, run.epoch)], NOW) == 0
        assert await store.release("w1", [(run.key, run.epoch + 1)], NOW) == 0
        assert (await row(store, "run")).owner == "w1"

    async def test_text_that_looks_like_sql_is_only_text(self, store: Store) -> None:
        await worker(store)
        evil = "'; DROP TABLE runs; --"
        await start(store, evil, workflow=evil, session=evil)
        assert await claim(store, workflows=["research"]) == []
        assert await claim_ids(store, workflows=[evil]) == [evil]
        assert await store.settled([evil, "%", "' OR 1=1"]) == []


async def crash(store: Store, run: RunRow | None = None, *, alone: bool = True) -> Reaped:
    """A worker claims what it can get, makes no progress, and dies."""
    await worker(store, "victim")
    await claim(store, "victim", alone=alone)
    reaped = await store.reap("victim", NOW, dead=True)
    assert reaped is not None
    return reaped


class Suspects:
    async def test_a_death_without_progress_is_a_strike(self, store: Store) -> None:
        await start(store, "run")
        assert (await crash(store)).runs == ["run"]
        found = await row(store, "run")
        assert (found.status, found.strikes, found.owner) == (Status.PENDING, 1, None)
        assert found.ready_at == NOW

    async def test_progress_wipes_the_strikes_out(self, store: Store) -> None:
        await start(store, "run")
        await crash(store)
        await worker(store)
        (claimed,) = await claim(store)
        await do(store, append(claimed.row, step(claimed.seq + 1)))
        await store.reap("w1", NOW, dead=True)
        assert (await row(store, "run")).strikes == 0

    async def test_progress_of_an_earlier_owner_does_not_count(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await do(store, append(run, step(2)))
        await store.release("w1", [(run.key, run.epoch)], NOW)
        await crash(store)
        assert (await row(store, "run")).strikes == 1

    async def test_notes_are_no_progress(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        note, attempt = step(2), step(3)
        note.kind, attempt.kind = Kind.VALUE, Kind.ATTEMPT
        await do(store, append(run, note, attempt))
        await store.reap("w1", NOW, dead=True)
        assert (await row(store, "run")).strikes == 1

    async def test_a_suspect_is_only_claimed_alone(self, store: Store) -> None:
        await start(store, "suspect")
        await crash(store)
        await crash(store)
        await start(store, "innocent", ready_at=NOW + 1)
        await worker(store)
        assert await claim_ids(store, now=NOW + 1) == ["innocent"]
        assert await claim_ids(store, now=NOW + 1, alone=True) == ["suspect"]

    async def test_a_suspect_that_suspends_after_progress_is_none_any_more(
        self, store: Store
    ) -> None:
        for id in ("got further", "did not"):
            await start(store, id)
        await crash(store)
        await crash(store)
        await worker(store)
        for id in ("got further", "did not"):
            (claimed,) = await claim(store, alone=True)
            assert claimed.row.id == id
            entries = [step(claimed.seq + 1)] if id == "got further" else []
            await do(store, append(claimed.row, *entries, then=waiting(ready_at=NOW + 1)))
        assert (await row(store, "got further")).strikes == 0
        assert (await row(store, "did not")).strikes == 2

    async def test_nothing_is_claimed_together_with_a_suspect(self, store: Store) -> None:
        for id in ("one", "two"):
            await start(store, id)
        await crash(store)
        await crash(store)
        await start(store, "innocent", priority=9)
        await worker(store)
        # The innocent one goes first, and so neither suspect goes with it.
        assert await claim_ids(store, alone=True) == ["innocent"]
        assert await claim_ids(store, alone=True) == ["one"]
        assert await claim_ids(store, alone=True) == ["two"]

    async def test_a_suspect_does_not_wake_a_worker_that_cannot_take_it(self, store: Store) -> None:
        await start(store, "suspect")
        await crash(store)
        await crash(store)
        assert await store.next_ready(["research"], alone=False) is None
        assert await store.next_ready(["research"]) == NOW

    async def test_the_fifth_strike_quarantines(self, store: Store) -> None:
        await start(store, "run")
        for _ in range(4):
            assert (await crash(store)).quarantined == []
        reaped = await crash(store)
        assert (reaped.runs, reaped.quarantined) == ([], ["run"])
        found = await row(store, "run")
        assert (found.status, found.ready_at, found.owner) == (Status.QUARANTINED, None, None)
        assert found.reason
        await worker(store)
        assert await claim(store, alone=True) == []
        assert [r.id for r in await store.settled(["run"])] == ["run"]

    async def test_a_quarantined_run_is_resumed_with_a_clean_slate(self, store: Store) -> None:
        await start(store, "run")
        for _ in range(5):
            await crash(store)
        resumed = await store.resume("run", NOW)
        assert (resumed.status, resumed.strikes) == (Status.PENDING, 0)
        await worker(store)
        assert await claim_ids(store) == ["run"]

    async def test_one_poison_run_takes_nobody_with_it(self, store: Store) -> None:
        """All runs of the first two crashes are suspects; alone, the innocent ones get further."""
        ids = [f"run-{n}" for n in range(6)]
        await store.commit([Start(new_run(id)) for id in ids])
        await crash(store)
        await crash(store)
        for n in range(100):
            await worker(store, f"w{n}")
            claimed = await claim(store, f"w{n}", alone=True)
            if not claimed:
                break
            (one,) = claimed
            if one.row.id == "run-3":
                await store.reap(f"w{n}", NOW, dead=True)
            else:
                await end(store, one.row, one.seq + 1)
        statuses = {id: (await row(store, id)).status for id in ids}
        assert statuses.pop("run-3") is Status.QUARANTINED
        assert set(statuses.values()) == {Status.COMPLETED}


class Workers:
    async def test_a_registered_worker_is_listed_with_its_process(self, store: Store) -> None:
        await worker(store, "w1", lease_seconds=60)
        (found,) = await store.workers()
        assert (found.id, found.started_at, found.lease_seconds) == ("w1", NOW, 60)
        assert 0 < found.lease_left_seconds <= 60
        assert found.pid > 0 and found.host and found.process_started
        assert not await store.is_dead(found)

    async def test_a_lease_is_renewed_until_the_worker_is_reaped(self, store: Store) -> None:
        keeper: Leasekeeper = await worker(store)
        assert keeper.renew()
        assert await store.reap("w1", NOW, dead=True) is not None
        assert not keeper.renew()
        assert await store.workers() == []

    async def test_a_living_worker_with_a_lease_is_not_reaped(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        assert await store.reap("w1", NOW, dead=False) is None
        assert (await row(store, "run")).owner == "w1"
        assert await do(store, append(run, step(2))) == Appended()

    async def test_a_worker_whose_lease_ran_out_is_reaped(self, store: Store) -> None:
        await worker(store, lease_seconds=0)
        await started_and_claimed(store, "run")
        reaped = await store.reap("w1", NOW + 1, dead=False)
        assert reaped is not None
        assert (reaped.worker.id, reaped.runs, reaped.quarantined) == ("w1", ["run"], [])
        assert (await row(store, "run")).ready_at == NOW + 1

    async def test_reaping_twice_counts_once(self, store: Store) -> None:
        await worker(store)
        await started_and_claimed(store, "run")
        assert await store.reap("w1", NOW, dead=True) is not None
        assert await store.reap("w1", NOW, dead=True) is None
        assert (await row(store, "run")).strikes == 1

    async def test_reaping_touches_only_the_dead_workers_runs(self, store: Store) -> None:
        await worker(store, "w1")
        await worker(store, "w2")
        await started_and_claimed(store, "dead", by="w1")
        mine = await started_and_claimed(store, "mine", by="w2")
        ended = await started_and_claimed(store, "ended", by="w1")
        await end(store, ended, 2)
        reaped = await store.reap("w1", NOW, dead=True)
        assert reaped is not None and reaped.runs == ["dead"]
        assert await row(store, "mine") == mine

    async def test_a_worker_that_leaves_in_good_order_loses_nothing(self, store: Store) -> None:
        await worker(store, "w1")
        await worker(store, "w2")
        await started_and_claimed(store, "forgotten", by="w1")
        await store.deregister("w1")
        assert [found.id for found in await store.workers()] == ["w2"]
        (claimed,) = await claim(store, "w2")
        assert (claimed.row.id, claimed.row.strikes) == ("forgotten", 0)

    async def test_a_worker_that_hangs_hands_its_runs_on(self, store: Store) -> None:
        keeper = await worker(store, "w1")
        await worker(store, "w2")
        await started_and_claimed(store, "run", by="w1")
        assert keeper.hand_back("blocked for 20 s") == 1
        (claimed,) = await claim(store, "w2")
        assert (claimed.row.id, claimed.row.strikes) == ("run", 1)
        noted = {found.id: found.note for found in await store.workers()}
        assert noted["w1"] == "blocked for 20 s"

    async def test_a_worker_without_a_keeper_is_dead(self, store: Store) -> None:
        keeper = await worker(store)
        (found,) = await store.workers()
        await started_and_claimed(store, "run")
        assert await store.reap("w1", NOW) is None
        keeper.close()
        assert await store.is_dead(found)
        reaped = await store.reap("w1", NOW)
        assert reaped is not None and reaped.runs == ["run"]
