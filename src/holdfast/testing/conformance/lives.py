"""What becomes of a run: it suspends, wakes up, ends, starts afresh, stops and goes on."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import NotResumable, UnknownRun
from holdfast.store.base import Appended, ContinueAs, Started, Store, Suspend
from holdfast.testing.conformance.given import (
    NOW,
    SECOND,
    WORKFLOW,
    append,
    assert_lease_lost,
    claim,
    claim_ids,
    do,
    end,
    keys,
    new_run,
    promise,
    row,
    start,
    started_and_claimed,
    step,
    suspend,
    waiting,
    worker,
)
from holdfast.types import Entry, Kind, MailKind, Status


class Suspending:
    async def test_a_suspended_run_waits_until_its_deadline(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await suspend(store, run, 2, reason="a timer", ready_at=NOW + SECOND)
        found = await row(store, "run")
        assert (found.status, found.owner) == (Status.WAITING, None)
        assert (found.ready_at, found.reason) == (NOW + SECOND, "a timer")
        assert await store.next_ready(["research"]) == NOW + SECOND
        assert await claim(store, now=NOW + SECOND - 1) == []
        (claimed,) = await claim(store, now=NOW + SECOND)
        assert (claimed.seq, claimed.row.epoch) == (3, 2)
        assert claimed.row.status is Status.RUNNING

    async def test_mail_wakes_a_run_that_waits(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await suspend(store, run, 2)
        assert await store.next_ready(["research"]) is None
        await store.post("run", MailKind.PROMISE, "ok", b"yes", NOW + 5)
        assert await store.next_ready(["research"]) == NOW + 5
        assert await claim_ids(store, now=NOW + 5) == ["run"]

    async def test_mail_that_came_before_the_suspension_refuses_it(self, store: Store) -> None:
        """The wake-up is not lost: the entries land, and the run stays with its owner."""
        await worker(store)
        run = await started_and_claimed(store, "run")
        await store.post("run", MailKind.PROMISE, "ok", b"yes", NOW)
        outcome = await do(store, append(run, step(2), then=waiting()))
        assert outcome == Appended(suspended=False)
        found = await row(store, "run")
        assert (found.status, found.owner) == (Status.RUNNING, "w1")
        assert await keys(store, run.key) == [(1, "w1"), (2, "/step#2")]
        assert await do(store, append(run, step(3))) == Appended()

    async def test_mail_that_was_seen_does_not_refuse_a_suspension(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        mail = await store.post("run", MailKind.MESSAGE, "", b"hi", NOW)
        await suspend(store, run, 2, mail_seen=mail.id)

    async def test_mail_of_another_run_does_not_refuse_a_suspension(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await started_and_claimed(store, "other")
        await store.post("other", MailKind.MESSAGE, "", b"hi", NOW)
        await suspend(store, run, 2)

    async def test_no_wake_up_is_lost_when_an_answer_races_a_suspension(self, store: Store) -> None:
        await worker(store)
        for n in range(20):
            run = await started_and_claimed(store, f"run-{n}")
            suspending = do(store, append(run, step(2), then=waiting()))
            resolving = store.post(run.id, MailKind.PROMISE, "ok", b"yes", NOW)
            racers = [suspending, resolving] if n % 2 else [resolving, suspending]
            await asyncio.gather(*racers)
            found = await row(store, run.id)
            if found.status is Status.RUNNING:
                assert len(await store.mail([(run.key, 0)])) == 1
            else:
                assert await claim_ids(store) == [run.id]

    async def test_a_run_can_be_suspended_as_paused_or_parked(self, store: Store) -> None:
        await worker(store)
        for status in (Status.PAUSED, Status.PARKED):
            run = await started_and_claimed(store, status)
            then = Suspend(None, 0, "why", status)
            assert await do(store, append(run, then=then)) == Appended(suspended=True)
            found = await row(store, status)
            assert (found.status, found.reason, found.owner) == (status, "why", None)
            await store.post(status, MailKind.MESSAGE, "", b"wake up", NOW)
            assert await claim(store) == []


class Ending:
    @pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
    async def test_an_ended_run_keeps_its_output(self, store: Store, status: Status) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await end(store, run, 2, status, b"out", at=NOW + 3)
        found = await row(store, "run")
        assert (found.status, found.output, found.ended_at) == (status, b"out", NOW + 3)
        assert (found.owner, found.ready_at) == (None, None)
        assert await claim(store) == []

    @pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
    async def test_an_awaited_child_tells_its_parent(self, store: Store, status: Status) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent")
        child = await started_and_claimed(
            store, "child", parent=parent.key, parent_step="/call:child#0"
        )
        await suspend(store, parent, 2)
        await end(store, child, 2, status, b"out")
        (mail,) = await store.mail([(parent.key, 0)])
        assert (mail.kind, mail.name) == (MailKind.CHILD, "/call:child#0")
        assert (mail.payload, mail.failed) == (b"out", status is not Status.COMPLETED)
        assert await claim_ids(store) == ["parent"]

    async def test_a_running_parent_gets_the_mail_and_goes_on_running(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent")
        child = await started_and_claimed(store, "child", parent=parent.key, parent_step="/c#0")
        await end(store, child, 2)
        assert len(await store.mail([(parent.key, 0)])) == 1
        assert (await row(store, "parent")).status is Status.RUNNING

    async def test_a_detached_child_tells_nobody(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent")
        child = await started_and_claimed(store, "child", parent=parent.key)
        await end(store, child, 2)
        assert await store.mail([(parent.key, 0)]) == []

    async def test_a_child_may_outlive_its_parent(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent")
        child = await started_and_claimed(store, "child", parent=parent.key, parent_step="/c#0")
        await end(store, parent, 2)
        await end(store, child, 2)
        assert (await row(store, "child")).status is Status.COMPLETED

    async def test_children_are_found_by_their_parent(self, store: Store) -> None:
        parent = await start(store, "parent")
        for id in ("one", "two"):
            await start(store, id, parent=parent.key)
        await start(store, "stranger")
        assert [child.id for child in await store.children(parent.key)] == ["one", "two"]


class ContinuingAs:
    async def test_a_run_starts_afresh_under_its_id(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await do(store, append(run, step(2), step(3)))
        last = Entry(4, Kind.END, "", NOW)
        outcome = await do(store, append(run, last, then=ContinueAs(b"new", b"new digest")))
        assert outcome == Appended()
        found = await row(store, "run")
        assert (found.status, found.generation, found.owner) == (Status.PENDING, 2, None)
        assert (found.input, found.digest, found.ready_at) == (b"new", b"new digest", NOW)
        assert await store.journal(run.key) == []
        (claimed,) = await claim(store)
        assert (claimed.seq, claimed.row.epoch, claimed.row.key) == (1, 2, run.key)

    async def test_the_generation_before_stays_fenced_off(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await do(store, append(run, then=ContinueAs(b"new", b"d")))
        assert_lease_lost(await do(store, append(run, step(2))))
        (claimed,) = await claim(store)
        assert_lease_lost(await do(store, append(run, step(2))))
        assert await do(store, append(claimed.row, step(2))) == Appended()

    async def test_undelivered_mail_is_kept_and_delivered_mail_is_not(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        posted = [
            await store.post("run", MailKind.MESSAGE, "", text, NOW)
            for text in (b"in the journal", b"in the last batch", b"for the next")
        ]
        await store.post("run", MailKind.PAUSE, "", None, NOW)
        early = await store.post("run", MailKind.PROMISE, "early", b"yes", NOW)
        await do(store, append(run, Entry(2, Kind.MESSAGE, "/m#0", NOW, mail=posted[0].id)))
        delivery = Entry(3, Kind.MESSAGE, "/m#1", NOW, mail=posted[1].id)
        await do(store, append(run, delivery, then=ContinueAs(b"new", b"d")))
        assert await store.mail([(run.key, 0)]) == [posted[2], early]

    async def test_promises_of_the_generation_before_are_gone(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await do(store, append(run, step(2), promises=[promise(run, "ok")]))
        await do(store, append(run, then=ContinueAs(b"new", b"d")))
        assert await store.promises(run.key) == []

    async def test_a_child_of_the_generation_before_tells_nobody(self, store: Store) -> None:
        """The new generation may well await another child in a step of the same key."""
        await worker(store)
        run = await started_and_claimed(store, "run")
        child = await started_and_claimed(store, "child", parent=run.key, parent_step="/c#0")
        await do(store, append(run, then=ContinueAs(b"new", b"d")))
        await end(store, child, 2)
        assert await store.mail([(run.key, 0)]) == []


class StoppingAndGoingOn:
    async def test_pausing_a_run_that_nobody_owns_stops_it_at_once(self, store: Store) -> None:
        await start(store, "run")
        await store.post("run", MailKind.PAUSE, "", None, NOW)
        found = await row(store, "run")
        assert (found.status, found.ready_at) == (Status.PAUSED, None)

    async def test_pausing_a_running_run_is_up_to_its_owner(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        mail = await store.post("run", MailKind.PAUSE, "", None, NOW)
        assert (await row(store, "run")).status is Status.RUNNING
        assert await store.mail([(run.key, 0)]) == [mail]

    async def test_a_paused_run_goes_on_when_resumed(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await suspend(store, run, 2)
        await store.post("run", MailKind.PAUSE, "", None, NOW)
        resumed = await store.resume("run", NOW + 1)
        assert (resumed.status, resumed.ready_at, resumed.resumes) == (Status.PENDING, NOW + 1, 1)
        assert await store.mail([(run.key, 0)]) == []
        (claimed,) = await claim(store, now=NOW + 1)
        assert claimed.row.resumes == 1

    async def test_a_run_that_is_paused_and_resumed_keeps_its_delay(self, store: Store) -> None:
        await worker(store)
        for id in ("early", "late"):
            await start(store, id, ready_at=NOW + 60 * SECOND)
            await store.post(id, MailKind.PAUSE, "", None, NOW)
            assert (await row(store, id)).ready_at is None
        for _ in range(2):  # however often
            resumed = await store.resume("early", NOW + SECOND)
            assert (resumed.status, resumed.ready_at) == (Status.PENDING, NOW + 60 * SECOND)
            await store.post("early", MailKind.PAUSE, "", None, NOW + SECOND)
        await store.resume("early", NOW + SECOND)
        assert await claim(store, now=NOW + SECOND) == []
        assert await store.next_ready([WORKFLOW]) == NOW + 60 * SECOND
        assert await claim_ids(store, now=NOW + 60 * SECOND) == ["early"]
        assert (await store.resume("late", NOW + 90 * SECOND)).ready_at == NOW + 90 * SECOND

    async def test_only_a_halted_run_can_be_resumed(self, store: Store) -> None:
        await worker(store)
        await start(store, "pending", ready_at=NOW + SECOND)
        running = await started_and_claimed(store, "running")
        with pytest.raises(NotResumable):
            await store.resume("pending", NOW)
        with pytest.raises(NotResumable):
            await store.resume("running", NOW)
        await end(store, running, 2)
        with pytest.raises(NotResumable):
            await store.resume("running", NOW)
        with pytest.raises(UnknownRun):
            await store.resume("nobody", NOW)

    async def test_a_failed_run_goes_on_without_the_entries_that_are_dropped(
        self, store: Store
    ) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        entries = [step(2, "/good#0"), step(3, "/bad#0", failed=True), step(4, "/task@0/good#0")]
        await do(store, append(run, *entries))
        await end(store, run, 5, Status.FAILED, b"error")
        again = await store.rerun("run", 1, NOW + 1, [3, 5])
        assert (again.status, again.output, again.ended_at) == (Status.PENDING, None, None)
        left = [(1, "w1"), (2, "/good#0"), (3, "/task@0/good#0")]
        assert await keys(store, run.key) == left
        (claimed,) = await claim(store, now=NOW + 1)
        assert (claimed.seq, claimed.row.epoch) == (4, 2)

    async def test_a_cancelled_run_is_not_cancelled_again_when_run_again(
        self, store: Store
    ) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run", deadline_at=NOW)
        mail = await store.post("run", MailKind.CANCEL, "", None, NOW)
        await do(store, append(run, Entry(2, Kind.CANCEL, "", NOW, mail=mail.id)))
        await end(store, run, 3, Status.CANCELLED, None)
        again = await store.rerun("run", 1, NOW + 1, [2, 3])
        assert again.deadline_at is None
        assert await keys(store, run.key) == [(1, "w1")]
        assert await store.mail([(run.key, 0)]) == []

    async def test_only_a_failed_or_cancelled_run_is_run_again(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        with pytest.raises(NotResumable):
            await store.rerun("run", 1, NOW, [])
        await end(store, run, 2)
        with pytest.raises(NotResumable):
            await store.rerun("run", 1, NOW, [])
        with pytest.raises(UnknownRun):
            await store.rerun("nobody", 1, NOW, [])

    async def test_a_run_that_went_on_is_not_run_again_by_what_was_known_before(
        self, store: Store
    ) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await do(store, append(run, step(2, failed=True)))
        await end(store, run, 3, Status.FAILED, b"error")
        await store.rerun("run", 1, NOW, [2, 3])
        (claimed,) = await claim(store)
        await do(store, append(claimed.row, step(3)))
        await end(store, claimed.row, 4, Status.FAILED, b"another error")
        before = await store.journal(run.key)
        with pytest.raises(NotResumable):
            await store.rerun("run", 1, NOW, [2, 3])
        assert await store.journal(run.key) == before
        assert (await store.rerun("run", 2, NOW, [4])).status is Status.PENDING

    async def test_a_fork_starts_with_a_copy_of_the_journal(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await do(store, append(run, step(2), step(3), step(4), promises=[promise(run, "ok")]))
        forked = await store.fork("run", 4, new_run("fork"))
        assert forked.created
        copied = await store.journal(forked.row.key)
        assert [entry.key for entry in copied] == ["w1", "/step#2", "/step#3"]
        assert {entry.epoch for entry in copied} == {0}
        (claimed,) = await claim(store)
        assert (claimed.row.id, claimed.seq, claimed.row.epoch) == ("fork", 4, 1)
        assert await do(store, append(claimed.row, step(5))) == Appended()
        assert len(await store.journal(run.key)) == 4

    async def test_forking_to_an_id_that_exists_changes_nothing(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await do(store, append(run, step(2)))
        await store.fork("run", 2, new_run("fork"))
        again = await store.fork("run", 3, new_run("fork"))
        assert isinstance(again, Started) and not again.created
        assert len(await store.journal(again.row.key)) == 1
        with pytest.raises(UnknownRun):
            await store.fork("nobody", 1, new_run("other"))
