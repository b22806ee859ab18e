"""The inbox: order, first answers, and what mail does to a run."""

from __future__ import annotations

import pytest

from holdfast.clock import NEVER
from holdfast.errors import AlreadyEnded, AlreadyResolved, UnknownRun
from holdfast.store.base import Appended, End, Refused, Store, Suspend
from holdfast.testing.conformance.given import (
    NOW,
    SECOND,
    WORKFLOW,
    append,
    claim,
    claim_ids,
    do,
    promise,
    start,
    started_and_claimed,
    step,
    worker,
)
from holdfast.types import Entry, Kind, MailKind, Status


class Posting:
    async def test_mail_is_read_in_order_of_arrival(self, store: Store) -> None:
        one, two = await start(store, "one"), await start(store, "two")
        posted = [
            await store.post(id, MailKind.MESSAGE, "", text, NOW)
            for id, text in (("one", b"1"), ("two", b"2"), ("one", b"3"))
        ]
        assert await store.mail([(two.key, 0), (one.key, 0)]) == posted
        assert await store.mail([(one.key, posted[0].id), (two.key, posted[1].id)]) == [posted[2]]
        assert await store.mail([(one.key, posted[2].id)]) == []
        assert await store.mail([]) == []

    async def test_the_first_answer_to_a_promise_stands(self, store: Store) -> None:
        run = await start(store, "run")
        await store.post("run", MailKind.PROMISE, "ok", b"yes", NOW)
        with pytest.raises(AlreadyResolved):
            await store.post("run", MailKind.PROMISE, "ok", b"no", NOW)
        await store.post("run", MailKind.PROMISE, "other", b"no", NOW)
        payloads = [mail.payload for mail in await store.mail([(run.key, 0)])]
        assert payloads == [b"yes", b"no"]

    async def test_an_answered_promise_shows_as_answered(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await store.post("run", MailKind.PROMISE, "early", b"yes", NOW)
        opened = [promise(run, "early"), promise(run, "late")]
        await do(store, append(run, step(2), promises=opened))
        shown = {p.name: p for p in await store.promises(run.key)}
        assert shown["late"] == opened[1]
        assert (shown["early"].resolved, shown["late"].resolved) == (True, False)
        await store.post("run", MailKind.PROMISE, "late", b"yes", NOW)
        assert all(p.resolved for p in await store.promises(run.key))

    async def test_a_promise_opened_again_stays_answered(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await do(store, append(run, step(2), promises=[promise(run, "ok")]))
        await store.post("run", MailKind.PROMISE, "ok", b"yes", NOW)
        await do(store, append(run, step(3), promises=[promise(run, "ok")]))
        (shown,) = await store.promises(run.key)
        assert shown.resolved

    @pytest.mark.parametrize("opened", ["before", "with"])
    async def test_a_promise_whose_answer_was_refused_is_answered_anew(
        self, store: Store, opened: str
    ) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        other = await started_and_claimed(store, "other")
        kept = await store.post("other", MailKind.PROMISE, "ok", b"yes", NOW)
        if opened == "before":
            await do(store, append(run, promises=[promise(run, "ok")]))
        first = await store.post("run", MailKind.PROMISE, "ok", b"odd", NOW)
        refused = Entry(2, Kind.REFUSED, "/promise:ok#0", NOW, failed=True, mail=first.id)
        promises = [promise(run, "ok")] if opened == "with" else []
        foreign = Entry(2, Kind.REFUSED, "/promise:ok#0", NOW, failed=True, mail=first.id)
        assert await do(store, append(other, foreign)) == Appended()  # not its own mail
        assert await store.mail([(run.key, 0)]) == [first]
        assert await do(store, append(run, refused, promises=promises)) == Appended()
        assert await store.mail([(run.key, 0), (other.key, 0)]) == [kept]
        assert [p.resolved for p in await store.promises(run.key)] == [False]
        second = await store.post("run", MailKind.PROMISE, "ok", b"yes", NOW)
        assert await store.mail([(run.key, first.id)]) == [second]
        assert [p.resolved for p in await store.promises(run.key)] == [True]

    async def test_only_the_owner_refuses_an_answer(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        mail = await store.post("run", MailKind.PROMISE, "ok", b"odd", NOW)
        refused = Entry(2, Kind.REFUSED, "/promise:ok#0", NOW, failed=True, mail=mail.id)
        assert isinstance(await do(store, append(run, refused, epoch=run.epoch + 1)), Refused)
        assert await store.mail([(run.key, 0)]) == [mail]

    @pytest.mark.parametrize("kind", [MailKind.CANCEL, MailKind.PAUSE])
    async def test_cancel_and_pause_are_posted_once(self, store: Store, kind: MailKind) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        first = await store.post("run", kind, "", None, NOW)
        assert await store.post("run", kind, "again", None, NOW + 1) == first
        assert await store.mail([(run.key, 0)]) == [first]

    async def test_cancel_wakes_waiting_and_halted_runs(self, store: Store) -> None:
        await worker(store)
        for status in (Status.WAITING, Status.PAUSED, Status.PARKED):
            run = await started_and_claimed(store, status)
            await do(store, append(run, then=Suspend(None, 0, "why", status)))
            await store.post(status, MailKind.CANCEL, "", None, NOW)
            assert await claim_ids(store) == [status]

    async def test_mail_wakes_a_parked_run_that_has_something_else_to_wait_for(
        self, store: Store
    ) -> None:
        await worker(store)
        for id, ready_at in (("alone", None), ("timed", NOW + SECOND), ("asked", NEVER)):
            run = await started_and_claimed(store, id)
            await do(store, append(run, then=Suspend(ready_at, 0, "why", Status.PARKED)))
        for id in ("alone", "asked"):
            await store.post(id, MailKind.MESSAGE, "", b"hello", NOW)
        assert await claim_ids(store) == ["asked"]
        assert await store.next_ready([WORKFLOW]) == NOW + SECOND
        assert await claim_ids(store, now=NOW + SECOND) == ["timed"]

    async def test_a_parked_run_that_only_mail_wakes_is_never_due(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await do(store, append(run, then=Suspend(NEVER, 0, "why", Status.PARKED)))
        assert await store.next_ready([WORKFLOW]) is None
        pause = await store.post("run", MailKind.PAUSE, "", None, NOW)
        message = await store.post("run", MailKind.MESSAGE, "", b"hello", NOW)
        assert await claim_ids(store) == ["run"]
        assert await store.mail([(run.key, 0)]) == [pause, message]

    async def test_cancel_takes_back_a_pause(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await do(store, append(run, then=Suspend(None, 0, "why", Status.WAITING)))
        await store.post("run", MailKind.PAUSE, "", None, NOW)
        cancel = await store.post("run", MailKind.CANCEL, "", None, NOW)
        assert await store.mail([(run.key, 0)]) == [cancel]

    async def test_a_repeated_cancel_wakes_a_run_that_halted_again(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        cancel = await store.post("run", MailKind.CANCEL, "", None, NOW)
        for status in (Status.PARKED, Status.PAUSED):
            await do(store, append(run, then=Suspend(None, cancel.id, "why", status)))
            assert await claim(store) == []
            assert await store.post("run", MailKind.CANCEL, "", None, NOW) == cancel
            (claimed,) = await claim(store)
            run = claimed.row
        assert await store.mail([(run.key, 0)]) == [cancel]

    async def test_a_pause_does_not_stop_a_run_that_was_cancelled(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await store.release("w1", [(run.key, run.epoch)], NOW)
        cancel = await store.post("run", MailKind.CANCEL, "", None, NOW)
        assert await store.post("run", MailKind.PAUSE, "", None, NOW) == cancel
        assert await store.mail([(run.key, 0)]) == [cancel]
        assert await claim_ids(store) == ["run"]

    async def test_a_cancel_takes_back_the_pause_that_an_owner_was_sent(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await store.post("run", MailKind.PAUSE, "", None, NOW)
        cancel = await store.post("run", MailKind.CANCEL, "", None, NOW)
        assert await store.mail([(run.key, 0)]) == [cancel]

    async def test_a_message_does_not_hurry_a_run_that_starts_later(self, store: Store) -> None:
        await worker(store)
        await start(store, "run", ready_at=NOW + 60 * SECOND)
        await store.post("run", MailKind.MESSAGE, "", b"no hurry", NOW)
        assert await claim(store) == []

    async def test_an_ended_run_takes_no_mail(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run")
        await do(store, append(run, then=End(Status.COMPLETED, b"")))
        with pytest.raises(AlreadyEnded):
            await store.post("run", MailKind.CANCEL, "", None, NOW)
        with pytest.raises(UnknownRun):
            await store.post("nobody", MailKind.CANCEL, "", None, NOW)
