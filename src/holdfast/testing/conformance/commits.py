"""Starting runs, appending to journals, and the fence between owners."""

from __future__ import annotations

from holdfast.store.base import Append, Appended, End, Refused, Start, Started, Store
from holdfast.testing.conformance.given import (
    NOW,
    SECOND,
    append,
    assert_lease_lost,
    claim,
    do,
    end,
    keys,
    new_run,
    row,
    start,
    started_and_claimed,
    step,
    suspend,
    worker,
)
from holdfast.types import Entry, Kind, NewRun, RunRow, Status


async def taken_over(store: Store, id: str = "run") -> tuple[RunRow, RunRow]:
    """A run as its first owner still sees it, and as its second owner does."""
    await worker(store, "w1")
    await worker(store, "w2")
    old = await started_and_claimed(store, id, by="w1")
    await store.reap("w1", NOW, dead=True)
    (claimed,) = await claim(store, "w2")
    assert claimed.seq == 2
    return old, claimed.row


class Starting:
    async def test_an_accepted_run_is_read_back_as_it_was_given(self, store: Store) -> None:
        parent = await start(store, "parent")
        new = new_run(
            "child",
            version="v2",
            queue="slow",
            priority=7,
            ready_at=NOW + SECOND,
            deadline_at=NOW + 9 * SECOND,
            session="s",
            while_waiting="release",
            parent=parent.key,
            parent_step="/call#0",
            options=b"{}",
        )
        (outcome,) = await store.commit([Start(new)])
        assert isinstance(outcome, Started)
        found = await row(store, "child")
        assert found == outcome.row
        for name in set(NewRun._fields) - {"on_busy"}:
            assert getattr(found, name) == getattr(new, name), name
        assert found.status is Status.PENDING
        assert (found.epoch, found.owner, found.generation, found.resumes) == (0, None, 1, 0)
        assert (found.output, found.ended_at, found.strikes, found.reason) == (None, None, 0, None)

    async def test_a_run_that_does_not_exist_is_none(self, store: Store) -> None:
        assert await store.get("nobody") is None

    async def test_the_same_id_started_twice_is_one_run(self, store: Store) -> None:
        first = await start(store, "run", digest=b"one")
        (outcome,) = await store.commit([Start(new_run("run", digest=b"two"))])
        assert isinstance(outcome, Started)
        assert not outcome.created and not outcome.joined
        assert outcome.row == first

    async def test_the_same_id_twice_in_one_batch_is_one_run(self, store: Store) -> None:
        await worker(store)
        operations = [Start(new_run("run"), claim_for="w1") for _ in range(2)]
        first, second = await store.commit(operations)
        assert isinstance(first, Started) and isinstance(second, Started)
        assert (first.created, first.claimed) == (True, True)
        assert (second.created, second.claimed) == (False, False)
        assert second.row.key == first.row.key
        assert len(await store.journal(first.row.key)) == 1

    async def test_a_started_run_is_claimed_at_once_if_asked_for(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        assert (run.status, run.owner, run.epoch, run.ready_at) == (Status.RUNNING, "w1", 1, None)
        assert await row(store, "run") == run
        (entry,) = await store.journal(run.key)
        assert (entry.seq, entry.kind, entry.key, entry.epoch) == (1, Kind.CLAIM, "w1", 1)
        assert await claim(store) == []

    async def test_a_start_for_a_worker_that_was_reaped_is_accepted_unclaimed(
        self, store: Store
    ) -> None:
        (outcome,) = await store.commit([Start(new_run("run"), claim_for="ghost")])
        assert isinstance(outcome, Started)
        assert (outcome.created, outcome.claimed) == (True, False)
        assert outcome.row.status is Status.PENDING

    async def test_a_run_that_starts_later_is_not_claimed_at_once(self, store: Store) -> None:
        await worker(store)
        later = new_run("run", ready_at=NOW + SECOND)
        (outcome,) = await store.commit([Start(later, claim_for="w1")])
        assert isinstance(outcome, Started)
        assert not outcome.claimed

    async def test_a_pruned_run_does_not_leave_its_key_to_another(self, store: Store) -> None:
        await worker(store)
        old = await started_and_claimed(store, "old")
        await end(store, old, 2)
        assert await store.prune(NOW + SECOND, 10) == 1
        new = await started_and_claimed(store, "new")
        assert new.key != old.key
        assert_lease_lost(await do(store, append(old, step(2))))


class Appending:
    async def test_entries_are_read_back_as_they_were_written(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        full = Entry(
            2,
            Kind.STEP,
            "/näme#0",
            NOW + 1,
            epoch=1,
            position=3,
            attempt=2,
            failed=True,
            digest=b"\x00d",
            input=b"in",
            output=b"\xffout",
            started_at=NOW,
            due_at=NOW + 2,
            mail=77,
        )
        bare = Entry(3, Kind.VALUE, "", NOW, epoch=1)
        assert await do(store, append(run, full, bare)) == Appended()
        assert (await store.journal(run.key))[1:] == [full, bare]

    async def test_every_kind_of_entry_can_be_kept(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        entries = [Entry(seq, kind, "k", NOW, epoch=1) for seq, kind in enumerate(Kind, start=2)]
        assert await do(store, append(run, *entries)) == Appended()
        assert (await store.journal(run.key))[1:] == entries

    async def test_a_batch_keeps_the_order_of_its_operations(self, store: Store) -> None:
        await worker(store)
        runs = [await started_and_claimed(store, f"run-{n}") for n in range(20)]
        batch: list[Append | Start] = [append(run, step(2), step(3)) for run in runs]
        batch.insert(10, Start(new_run("late")))
        outcomes = await store.commit(batch)
        assert isinstance(outcomes.pop(10), Started)
        assert outcomes == [Appended()] * 20
        for run in runs:
            assert await keys(store, run.key) == [(1, "w1"), (2, "/step#2"), (3, "/step#3")]

    async def test_one_run_may_append_twice_in_a_batch(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        outcomes = await store.commit([append(run, step(2)), append(run, step(3))])
        assert outcomes == [Appended(), Appended()]
        assert len(await store.journal(run.key)) == 3

    async def test_an_empty_batch_is_no_error(self, store: Store) -> None:
        assert await store.commit([]) == []

    async def test_a_long_journal_is_read_as_a_whole(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        for first in range(2, 1002, 100):
            await do(store, append(run, *(step(seq) for seq in range(first, first + 100))))
        assert len(await keys(store, run.key)) == 1001

    async def test_an_operation_that_cannot_be_written_fails_alone(self, store: Store) -> None:
        await worker(store)
        good, bad = [await started_and_claimed(store, id) for id in ("good", "bad")]
        too_large = step(3, started_at=1 << 80)
        outcomes = await store.commit(
            [
                append(good, step(2)),
                append(bad, step(2), too_large),
                Start(new_run("new")),
                append(good, step(3)),
            ]
        )
        assert outcomes[0] == outcomes[3] == Appended()
        assert isinstance(outcomes[1], Refused)
        assert isinstance(outcomes[2], Started) and outcomes[2].created
        assert len(await store.journal(good.key)) == 3
        assert len(await store.journal(bad.key)) == 1
        assert await do(store, append(bad, step(2))) == Appended()


class Fencing:
    async def test_a_superseded_batch_lands_nothing(self, store: Store) -> None:
        """The claim takes place 2; of the zombie's batch [2, 3, 4] not even 3 and 4 may land."""
        old, new = await taken_over(store)
        assert_lease_lost(await do(store, append(old, step(2), step(3), step(4))))
        assert await keys(store, new.key) == [(1, "w1"), (2, "w2")]

    async def test_a_pipelined_second_batch_lands_nothing_either(self, store: Store) -> None:
        old, new = await taken_over(store)
        outcomes = await store.commit([append(old, step(2), step(3)), append(old, step(4))])
        for outcome in outcomes:
            assert_lease_lost(outcome)
        assert_lease_lost(await do(store, append(old, step(3))))
        assert await keys(store, new.key) == [(1, "w1"), (2, "w2")]

    async def test_a_zombie_whose_place_is_right_is_stopped_by_its_epoch(
        self, store: Store
    ) -> None:
        old, new = await taken_over(store)
        assert_lease_lost(await do(store, append(old, step(3))))
        assert await do(store, append(new, step(3))) == Appended()
        assert_lease_lost(await do(store, append(old, step(4))))

    async def test_one_superseded_run_leaves_the_rest_of_its_batch_untouched(
        self, store: Store
    ) -> None:
        old, new = await taken_over(store)
        others = [await started_and_claimed(store, f"other-{n}", by="w2") for n in range(10)]
        batch = [append(run, step(2), step(3)) for run in others]
        outcomes = await store.commit([*batch[:5], append(old, step(2)), *batch[5:]])
        assert_lease_lost(outcomes.pop(5))
        assert outcomes == [Appended()] * 10
        for run in others:
            assert len(await store.journal(run.key)) == 3
        assert len(await store.journal(new.key)) == 2

    async def test_a_superseded_worker_can_neither_end_nor_suspend_the_run(
        self, store: Store
    ) -> None:
        old, new = await taken_over(store)
        ending = append(old, step(2), then=End(Status.COMPLETED, b"stolen"))
        assert_lease_lost(await do(store, ending))
        found = await row(store, "run")
        assert (found.status, found.owner, found.output) == (Status.RUNNING, "w2", None)
        assert found.epoch == new.epoch == old.epoch + 1

    async def test_the_same_batch_sent_again_is_refused(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        assert await do(store, append(run, step(2))) == Appended()
        assert_lease_lost(await do(store, append(run, step(2))))
        assert len(await store.journal(run.key)) == 2

    async def test_an_append_that_leaves_a_gap_is_refused(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        assert_lease_lost(await do(store, append(run, step(3))))
        assert len(await store.journal(run.key)) == 1

    async def test_a_run_that_nobody_claimed_takes_no_entries(self, store: Store) -> None:
        run = await start(store, "run")
        assert_lease_lost(await do(store, append(run, step(1))))
        assert await store.journal(run.key) == []

    async def test_a_run_that_does_not_exist_takes_no_entries(self, store: Store) -> None:
        assert_lease_lost(await do(store, Append(4711, 1, [step(2)], NOW)))

    async def test_nothing_is_appended_after_the_end(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await end(store, run, 2)
        assert_lease_lost(await do(store, append(run, step(3))))
        again = append(run, step(3), then=End(Status.FAILED, b"other"))
        assert_lease_lost(await do(store, again))
        assert (await row(store, "run")).output == b'"result"'

    async def test_a_worker_cannot_end_a_run_it_handed_back(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        assert await store.release("w1", [(run.key, run.epoch)], NOW) == 1
        ending = append(run, step(2), then=End(Status.COMPLETED, b"late"))
        assert_lease_lost(await do(store, ending))
        assert (await row(store, "run")).status is Status.PENDING

    async def test_a_suspended_run_takes_nothing_from_its_former_owner(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await suspend(store, run, 2)
        ending = append(run, step(3), then=End(Status.COMPLETED, b"late"))
        assert_lease_lost(await do(store, ending))
