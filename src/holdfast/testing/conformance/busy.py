"""What becomes of a run whose session is busy: the choices that callers have."""

from __future__ import annotations

from typing import Any

from holdfast.errors import IdReused, SessionBusy
from holdfast.store.base import ContinueAs, End, Refused, Start, Started, Store, Suspend
from holdfast.testing.conformance.given import (
    NOW,
    SECOND,
    append,
    claim,
    claim_ids,
    do,
    end_of,
    new_run,
    row,
    start,
    started_and_claimed,
    suspend,
    worker,
)
from holdfast.types import Entry, Kind, MailKind, Status


class OnBusy:
    async def test_reject_refuses_a_run_of_a_busy_session(self, store: Store) -> None:
        await start(store, "first", session="s")
        (outcome,) = await store.commit([Start(new_run("second", session="s", on_busy="reject"))])
        assert isinstance(outcome, Refused)
        assert isinstance(outcome.error, SessionBusy)
        assert await store.get("second") is None

    async def test_reject_accepts_a_run_of_a_free_session(self, store: Store) -> None:
        await worker(store)
        await started_and_claimed(store, "first", session="s")
        await end_of(store, "first")
        await start(store, "second", session="s", on_busy="reject")

    async def test_reject_still_knows_an_id_that_was_accepted(self, store: Store) -> None:
        new = new_run("run", session="s", on_busy="reject")
        (first,) = await store.commit([Start(new)])
        (again,) = await store.commit([Start(new)])
        assert isinstance(first, Started) and isinstance(again, Started)
        assert (first.created, again.created) == (True, False)

    async def test_join_gives_the_input_to_the_sessions_run(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "first", session="s")
        await start(store, "queued", session="s")
        await suspend(store, run, 2)
        joining = new_run("second", session="s", on_busy="join", input=b"hello")
        (outcome,) = await store.commit([Start(joining)])
        assert isinstance(outcome, Started)
        assert (outcome.row.id, outcome.created, outcome.joined) == ("first", False, True)
        (mail,) = await store.mail([(run.key, 0)])
        assert (mail.kind, mail.name, mail.payload) == (MailKind.MESSAGE, "", b"hello")
        assert await store.get("second") is None
        assert await claim_ids(store) == ["first"]

    async def test_a_repeated_join_posts_its_input_once(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "first", session="s")
        joining = Start(new_run("second", session="s", on_busy="join", input=b"hello"))
        again = Start(new_run("second", session="s", on_busy="join", input=b"hello"))
        outcomes = [*await store.commit([joining]), *await store.commit([again, joining])]
        for outcome in outcomes:
            assert isinstance(outcome, Started)
            assert (outcome.row.id, outcome.created, outcome.joined) == ("first", False, True)
        assert len(await store.mail([(run.key, 0)])) == 1
        other = new_run("third", session="s", on_busy="join", input=b"hello")
        await store.commit([Start(other)])
        assert len(await store.mail([(run.key, 0)])) == 2

    async def test_a_join_is_remembered_when_the_run_continues_and_when_it_has_ended(
        self, store: Store
    ) -> None:
        await worker(store)
        run = await started_and_claimed(store, "first", session="s")
        joining = Start(new_run("second", session="s", on_busy="join", input=b"hello"))
        await store.commit([joining])
        (mail,) = await store.mail([(run.key, 0)])
        delivery = Entry(2, Kind.MESSAGE, "/receive#0", NOW, mail=mail.id)
        await do(store, append(run, delivery, then=ContinueAs(b"new", b"d")))
        await store.commit([joining])
        assert await store.mail([(run.key, 0)]) == []
        assert await claim_ids(store) == ["first"]
        await end_of(store, "first")
        (outcome,) = await store.commit([joining])
        assert isinstance(outcome, Started)
        assert (outcome.row.status, outcome.joined) == (Status.COMPLETED, True)
        assert await store.get("second") is None
        await store.prune(NOW + SECOND, 10)
        (outcome,) = await store.commit([joining])
        assert isinstance(outcome, Started) and outcome.created

    async def test_a_join_repeated_with_another_input_is_refused(self, store: Store) -> None:
        run = await start(store, "first", session="s")
        await store.commit([Start(new_run("second", session="s", on_busy="join"))])
        other = new_run("second", session="s", on_busy="join", input=b"else", digest=b"else")
        (outcome,) = await store.commit([Start(other)])
        assert isinstance(outcome, Refused) and isinstance(outcome.error, IdReused)
        assert len(await store.mail([(run.key, 0)])) == 1

    async def test_join_goes_to_the_oldest_if_nobody_holds_the_session(self, store: Store) -> None:
        await start(store, "first", session="s")
        await start(store, "second", session="s")
        (outcome,) = await store.commit([Start(new_run("third", session="s", on_busy="join"))])
        assert isinstance(outcome, Started)
        assert (outcome.row.id, outcome.joined) == ("first", True)

    async def test_a_join_that_is_not_received_becomes_a_run_of_its_own(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "first", session="s")
        given: dict[str, Any] = {
            "workflow": "other",
            "version": "v2",
            "queue": "q",
            "priority": 3,
            "deadline_at": NOW + 60 * SECOND,
            "while_waiting": "release",
            "options": b"\x00\xff",
            "fairness_key": "tenant",
            "digest": b"\x01",
        }
        joining = new_run("second", session="s", on_busy="join", input=b"hello", **given)
        await store.commit([Start(joining)])
        await end_of(store, "first")
        found = await row(store, "second")
        assert {name: getattr(found, name) for name in given} == given
        assert (found.input, found.session, found.status) == (b"hello", "s", Status.PENDING)
        assert (found.incarnation, found.created_at) == (joining.incarnation, joining.created_at)
        (outcome,) = await store.commit([Start(joining)])
        assert isinstance(outcome, Started)
        assert (outcome.row.id, outcome.created, outcome.joined) == ("second", False, False)
        assert await store.mail([(run.key, 0)]) == [], "a rerun does not receive it, too"
        assert await claim_ids(store, workflows=["other"]) == ["second"]

    async def test_joins_that_are_not_received_go_to_the_next_run(self, store: Store) -> None:
        await worker(store)
        await started_and_claimed(store, "first", session="s")
        for id in ("second", "third"):
            joining = new_run(id, session="s", on_busy="join", input=b"-" + id.encode())
            await store.commit([Start(joining)])
        await end_of(store, "first")
        assert await claim_ids(store) == ["second"]
        assert await store.get("third") is None
        second = await row(store, "second")
        (mail,) = await store.mail([(second.key, 0)])
        assert (mail.kind, mail.payload) == (MailKind.MESSAGE, b"-third")
        await start(store, "queued", session="s")
        await end_of(store, "second")
        assert await claim_ids(store) == ["queued"]
        assert await store.get("third") is None
        await end_of(store, "queued")
        assert await claim_ids(store) == ["third"]

    async def test_a_join_that_was_received_is_not_started_again(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "first", session="s")
        for id in ("early", "late"):
            await store.commit([Start(new_run(id, session="s", on_busy="join"))])
        early, late = await store.mail([(run.key, 0)])
        await do(store, append(run, Entry(2, Kind.MESSAGE, "/receive#0", NOW, mail=early.id)))
        received = Entry(3, Kind.MESSAGE, "/receive#1", NOW, mail=late.id)
        await do(store, append(run, received, then=End(Status.COMPLETED, b"")))
        assert await claim(store) == []
        assert [await store.get(id) for id in ("early", "late")] == [None, None]

    async def test_a_join_is_not_lost_with_a_run_that_never_began(self, store: Store) -> None:
        await worker(store)
        await start(store, "first", session="s", deadline_at=NOW + SECOND)
        await store.commit([Start(new_run("second", session="s", on_busy="join"))])
        await store.post("first", MailKind.CANCEL, "", None, NOW)
        assert (await row(store, "second")).status is Status.PENDING
        await store.post("second", MailKind.CANCEL, "", None, NOW)
        await start(store, "third", session="s", deadline_at=NOW + SECOND)
        await store.commit([Start(new_run("fourth", session="s", on_busy="join"))])
        assert await store.expire(NOW + SECOND, b"late") == 1
        assert await claim_ids(store) == ["fourth"]

    async def test_the_end_of_a_run_is_not_kept_up_by_a_join_whose_id_was_taken(
        self, store: Store
    ) -> None:
        await worker(store)
        await started_and_claimed(store, "first", session="s")
        await store.commit([Start(new_run("second", session="s", on_busy="join"))])
        await start(store, "second")  # without a session
        await end_of(store, "first")
        assert (await row(store, "first")).status is Status.COMPLETED
        assert await claim_ids(store) == ["second"]

    async def test_a_join_goes_with_the_run_that_is_interrupted(self, store: Store) -> None:
        await worker(store)
        await started_and_claimed(store, "first", session="s")
        await store.commit([Start(new_run("second", session="s", on_busy="join"))])
        await start(store, "third", session="s", on_busy="interrupt")
        await end_of(store, "first")
        third = await row(store, "third")
        assert await claim_ids(store) == ["third"]
        assert await store.mail([(third.key, 0)]) == []
        await end_of(store, "third")
        assert await store.get("second") is None

    async def test_join_starts_a_run_if_there_is_none(self, store: Store) -> None:
        (outcome,) = await store.commit([Start(new_run("first", session="s", on_busy="join"))])
        assert isinstance(outcome, Started)
        assert (outcome.created, outcome.joined) == (True, False)

    async def test_interrupt_cancels_what_is_there_and_queues_up(self, store: Store) -> None:
        await worker(store)
        first = await started_and_claimed(store, "first", session="s")
        parent = await started_and_claimed(store, "parent")
        place = {"parent": parent.key, "parent_step": "/c#0"}
        await start(store, "second", session="s", **place)
        third = await start(store, "third", session="s", on_busy="interrupt")
        (mail,) = await store.mail([(first.key, 0)])
        assert mail.kind is MailKind.CANCEL
        assert (await row(store, "second")).status is Status.CANCELLED  # it never began
        (mail,) = await store.mail([(parent.key, 0)])
        assert mail.kind is MailKind.CHILD
        assert await store.mail([(third.key, 0)]) == []
        assert await claim(store) == []
        await end_of(store, "first")
        assert await claim_ids(store) == ["third"]

    async def test_interrupt_wakes_what_halted_after_it_was_cancelled(self, store: Store) -> None:
        await worker(store)
        first = await started_and_claimed(store, "first", session="s")
        cancel = await store.post("first", MailKind.CANCEL, "", None, NOW)
        parked = Suspend(None, cancel.id, "why", Status.PARKED)
        await do(store, append(first, then=parked))
        assert await claim(store) == []
        await start(store, "second", session="s", on_busy="interrupt")
        assert await claim_ids(store) == ["first"]

    async def test_a_child_is_not_kept_out_by_its_own_parent(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent", session="s")
        await started_and_claimed(
            store, "child", session="s", parent=parent.key, parent_step="/c#0", on_busy="reject"
        )
