"""What sessions hold is deleted by hand, or after a while; never while a run may need it."""

from __future__ import annotations

import pytest

from holdfast.errors import SessionBusy
from holdfast.store.base import Appended, MessageWrite, StateWrite, Store, Suspend
from holdfast.testing.conformance.given import (
    NOW,
    SECOND,
    append,
    claim,
    do,
    end,
    end_of,
    start,
    started_and_claimed,
    step,
    waiting,
    worker,
)
from holdfast.types import MailKind, RunRow, Status


async def talked(store: Store, session: str) -> RunRow:
    """A run that has written to its session, and has not ended."""
    run = await started_and_claimed(store, f"run of {session}", session=session)
    written = (StateWrite(session, "a", b"1"), MessageWrite(session, b"hello"))
    assert await do(store, append(run, step(2))._replace(session=written)) == Appended()
    return run


async def holds(store: Store, session: str) -> bool:
    state, messages = await store.session_state(session), await store.session_messages(session)
    assert bool(state) == bool(messages), "it goes as a whole or not at all"
    return bool(state)


class Forgetting:
    async def test_a_deleted_session_holds_nothing_and_can_be_used_again(
        self, store: Store
    ) -> None:
        await worker(store)
        for session in ("s", "other"):
            await end(store, await talked(store, session), 3)
        (last, _) = (await store.session_messages("s"))[-1]
        assert await store.delete_session("s")
        assert not await holds(store, "s") and await holds(store, "other")
        assert not await store.delete_session("s"), "there is nothing left"
        run = await started_and_claimed(store, "next", session="s")
        await do(store, append(run, step(2))._replace(session=[MessageWrite("s", b"again")]))
        ((id, payload),) = await store.session_messages("s")
        assert payload == b"again" and id > last

    async def test_a_session_whose_run_has_not_ended_is_not_deleted(self, store: Store) -> None:
        await worker(store)
        run = await talked(store, "s")
        await self.refused(store, run.id)
        await do(store, append(run, step(3), then=waiting()))
        await self.refused(store, run.id)
        mail = await store.post(run.id, MailKind.MESSAGE, "", b"", NOW)
        await self.refused(store, run.id)
        (claimed,) = await claim(store)
        halt = Suspend(None, mail.id, "why", Status.PARKED)
        await do(store, append(claimed.row, step(claimed.seq + 1), then=halt))
        await self.refused(store, run.id)
        await store.post(run.id, MailKind.CANCEL, "", None, NOW)
        await claim(store)
        await end_of(store, run.id)
        await start(store, "next", session="s", ready_at=NOW + SECOND)
        await self.refused(store, "next")

    async def refused(self, store: Store, by: str) -> None:
        with pytest.raises(SessionBusy, match=by):
            await store.delete_session("s")
        assert await store.prune_sessions(NOW + SECOND, 10) == 0
        assert await holds(store, "s")

    async def test_the_sessions_that_are_idle_for_longest_are_pruned_first(
        self, store: Store
    ) -> None:
        await worker(store)
        for n in range(4):
            await end(store, await talked(store, f"s{n}"), 3, at=NOW + n)
        await talked(store, "busy")
        assert await store.prune_sessions(NOW, 10) == 0
        assert await store.prune_sessions(NOW + 3, 2) == 2
        assert [await holds(store, f"s{n}") for n in range(4)] == [False, False, True, True]
        assert await store.prune_sessions(NOW + 3, 2) == 1
        assert await store.prune_sessions(NOW + 3, 2) == 0
        assert await holds(store, "s3") and await holds(store, "busy")

    async def test_busy_sessions_are_in_no_idle_ones_way(self, store: Store) -> None:
        await worker(store)
        for n in range(5):
            await end(store, await talked(store, f"busy-{n}"), 3)
        await end(store, await talked(store, "idle"), 3, at=NOW + 1)
        for n in range(5):
            await start(store, f"next-{n}", session=f"busy-{n}")
        assert await store.prune_sessions(NOW + 2, 1) == 1
        assert not await holds(store, "idle")

    async def test_a_run_that_only_reads_its_session_uses_it(self, store: Store) -> None:
        await worker(store)
        await end(store, await talked(store, "s"), 3)
        await end(store, await started_and_claimed(store, "reader", session="s"), 2, at=NOW + 9)
        assert await store.prune_sessions(NOW + 9, 10) == 0
        assert await store.prune_sessions(NOW + 10, 10) == 1

    async def test_what_is_kept_of_a_deleted_run_keeps_no_session(self, store: Store) -> None:
        await worker(store)
        await end(store, await talked(store, "s"), 3)
        assert await store.prune(NOW + SECOND, 10) == 1
        assert await holds(store, "s"), "no run owns it"
        assert await store.prune_sessions(NOW + SECOND, 10) == 1
