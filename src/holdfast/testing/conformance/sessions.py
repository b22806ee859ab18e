"""Sessions: one run at a time, in order of arrival, and what they share."""

from __future__ import annotations

from holdfast.store.base import (
    Appended,
    ContinueAs,
    MessageWrite,
    Start,
    Started,
    StateWrite,
    Store,
)
from holdfast.testing.conformance.given import (
    NOW,
    SECOND,
    append,
    assert_lease_lost,
    claim,
    claim_ids,
    do,
    end,
    end_of,
    new_run,
    row,
    start,
    started_and_claimed,
    step,
    suspend,
    waiting,
    worker,
)
from holdfast.types import MailKind, RunRow, Status


class Sessions:
    async def test_runs_of_a_session_go_one_at_a_time_in_order_of_arrival(
        self, store: Store
    ) -> None:
        await worker(store)
        for n, priority in enumerate([0, 9, 5]):
            await start(store, f"run-{n}", session="s", priority=priority)
        for n in range(3):
            assert await claim_ids(store) == [f"run-{n}"]
            assert await claim_ids(store) == []
            await end_of(store, f"run-{n}")
        assert await claim(store) == []

    async def test_sessions_do_not_wait_for_each_other(self, store: Store) -> None:
        await worker(store)
        for n in range(3):
            await start(store, f"a-{n}", session="a")
            await start(store, f"b-{n}", session="b")
            await start(store, f"none-{n}")
        first = {"a-0", "b-0", "none-0", "none-1", "none-2"}
        assert set(await claim_ids(store)) == first
        await end_of(store, "b-0")
        assert await claim_ids(store) == ["b-1"]

    async def test_a_small_limit_gets_past_the_runs_that_must_wait(self, store: Store) -> None:
        await worker(store)
        await started_and_claimed(store, "holder", session="s")
        for n in range(10):
            await start(store, f"behind-{n}", session="s", priority=9)
        await start(store, "free")
        assert await claim_ids(store, limit=1) == ["free"]

    async def test_blocked_runs_do_not_keep_a_worker_awake(self, store: Store) -> None:
        await worker(store)
        await started_and_claimed(store, "holder", session="s")
        await start(store, "behind", session="s")
        assert await claim(store) == []
        assert await store.next_ready(["research"]) is None
        await end_of(store, "holder")
        assert await store.next_ready(["research"]) == NOW

    async def test_a_start_does_not_jump_the_queue(self, store: Store) -> None:
        await worker(store)
        await start(store, "first", session="s")
        (outcome,) = await store.commit([Start(new_run("second", session="s"), claim_for="w1")])
        assert isinstance(outcome, Started) and not outcome.claimed
        assert await claim_ids(store) == ["first"]

    async def test_a_start_in_a_free_session_is_claimed_at_once(self, store: Store) -> None:
        await worker(store)
        await started_and_claimed(store, "first", session="s")
        await end_of(store, "first")
        await started_and_claimed(store, "second", session="s")

    async def test_a_run_due_later_does_not_hold_up_the_session(self, store: Store) -> None:
        await worker(store)
        await start(store, "tomorrow", session="s", ready_at=NOW + SECOND)
        await start(store, "today", session="s")
        assert await claim_ids(store) == ["today"]
        assert await claim_ids(store, now=NOW + SECOND) == []
        await end_of(store, "today")
        assert await claim_ids(store, now=NOW + SECOND) == ["tomorrow"]

    async def test_a_waiting_run_holds_its_session(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "first", session="s")
        await start(store, "second", session="s")
        await suspend(store, run, 2)
        assert await claim(store) == []
        await store.post("first", MailKind.PROMISE, "ok", b"", NOW)
        assert await claim_ids(store) == ["first"]
        await end_of(store, "first")
        assert await claim_ids(store) == ["second"]

    async def test_a_waiting_run_may_release_its_session(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "first", session="s", while_waiting="release")
        await start(store, "second", session="s")
        await suspend(store, run, 2)
        assert await claim_ids(store) == ["second"]
        await store.post("first", MailKind.PROMISE, "ok", b"", NOW)
        await start(store, "third", session="s")
        assert await claim(store) == []
        await end_of(store, "second")
        assert await claim_ids(store) == ["first"]
        await end_of(store, "first")
        assert await claim_ids(store) == ["third"]

    async def test_a_refused_suspension_releases_nothing(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "first", session="s", while_waiting="release")
        await start(store, "second", session="s")
        await store.post("first", MailKind.MESSAGE, "", b"", NOW)
        assert await do(store, append(run, then=waiting())) == Appended(suspended=False)
        assert await claim(store) == []

    async def test_a_released_run_that_is_due_waits_for_the_session(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "first", session="s", while_waiting="release")
        await start(store, "second", session="s")
        await suspend(store, run, 2, ready_at=NOW + 1)
        assert await claim_ids(store) == ["second"]
        assert await claim(store, now=NOW + 1) == []
        await end_of(store, "second")
        assert await claim_ids(store, now=NOW + 1) == ["first"]

    async def test_a_dead_workers_run_keeps_its_session(self, store: Store) -> None:
        await worker(store, "w1")
        await worker(store, "w2")
        await started_and_claimed(store, "first", by="w1", session="s")
        await start(store, "second", session="s")
        await store.reap("w1", NOW, dead=True)
        assert await claim_ids(store, "w2") == ["first"]

    async def test_a_run_that_continues_keeps_its_session(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "first", session="s")
        await start(store, "second", session="s")
        await do(store, append(run, then=ContinueAs(b"new", b"d")))
        assert await claim_ids(store) == ["first"]

    async def test_a_paused_run_that_never_ran_lets_the_next_one_go(self, store: Store) -> None:
        await worker(store)
        await start(store, "first", session="s")
        await start(store, "second", session="s")
        assert await claim_ids(store, limit=0) == []
        await store.post("first", MailKind.PAUSE, "", None, NOW)
        assert await claim_ids(store) == ["second"]
        await store.resume("first", NOW)
        assert await claim(store) == []
        await end_of(store, "second")
        assert await claim_ids(store) == ["first"]


class Ahead:
    async def ahead(self, store: Store, id: str, now: int = NOW) -> str | None:
        found = await store.ahead((await row(store, id)).key, now)
        return found.id if found is not None else None

    async def test_a_run_is_behind_the_one_that_holds_its_session(self, store: Store) -> None:
        await worker(store)
        first = await started_and_claimed(store, "first", session="s")
        for id in ("second", "third"):
            await start(store, id, session="s")
            assert await self.ahead(store, id) == "first"
        assert await self.ahead(store, "first") is None
        await suspend(store, first, 2)
        assert await self.ahead(store, "second") == "first"
        assert await self.ahead(store, "first") is None
        await store.post("first", MailKind.MESSAGE, "", b"", NOW)
        assert await claim_ids(store) == ["first"]
        await end_of(store, "first")
        assert await self.ahead(store, "second") is None
        assert await self.ahead(store, "third") == "second"

    async def test_nothing_is_ahead_of_a_run_without_a_session_or_not_due(
        self, store: Store
    ) -> None:
        await worker(store)
        await started_and_claimed(store, "holder", session="s")
        await start(store, "alone")
        await start(store, "elsewhere", session="t")
        await start(store, "later", session="s", ready_at=NOW + SECOND)
        for id in ("alone", "elsewhere", "later"):
            assert await self.ahead(store, id) is None
        assert await self.ahead(store, "later", NOW + SECOND) == "holder"

    async def test_an_awaited_child_is_not_behind_its_parent(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent", session="s")
        await start(store, "child", session="s", parent=parent.key, parent_step="/c#0")
        await start(store, "detached", session="s", parent=parent.key)
        assert await self.ahead(store, "child") is None
        assert await self.ahead(store, "detached") == "parent"

    async def test_a_run_that_released_its_session_is_behind_whoever_took_it(
        self, store: Store
    ) -> None:
        await worker(store)
        first = await started_and_claimed(store, "first", session="s", while_waiting="release")
        await start(store, "second", session="s")
        await suspend(store, first, 2, ready_at=NOW + SECOND)
        assert await claim_ids(store) == ["second"]
        assert await self.ahead(store, "first") is None
        assert await self.ahead(store, "first", NOW + SECOND) == "second"


class Children:
    async def child(self, store: Store, id: str, parent: RunRow, **fields: object) -> RunRow:
        step_key = f"/call:{id}#0"
        return await start(
            store, id, session="s", parent=parent.key, parent_step=step_key, **fields
        )

    async def test_an_awaited_child_shares_its_parents_slot(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent", session="s")
        await start(store, "stranger", session="s")
        await self.child(store, "one", parent)
        await self.child(store, "two", parent)
        await suspend(store, parent, 2)
        assert await claim_ids(store) == ["one", "two"]
        await end_of(store, "one")
        assert await claim_ids(store) == ["parent"]

    async def test_so_does_a_grandchild(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent", session="s")
        await self.child(store, "child", parent)
        (claimed,) = await claim(store)
        await self.child(store, "grandchild", claimed.row)
        assert await claim_ids(store) == ["grandchild"]

    async def test_a_detached_child_queues_up(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent", session="s")
        await start(store, "detached", session="s", parent=parent.key)
        assert await claim(store) == []
        await end_of(store, "parent")
        assert await claim_ids(store) == ["detached"]

    async def test_a_child_that_runs_keeps_the_slot_its_parent_released(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent", session="s", while_waiting="release")
        await start(store, "stranger", session="s")
        await self.child(store, "child", parent)
        assert await claim_ids(store) == ["child"]
        await suspend(store, parent, 2)
        assert await claim(store) == []
        await end_of(store, "child")
        # Both could go now; the parent came first.
        assert await claim_ids(store) == ["parent"]

    async def test_a_child_that_had_to_wait_goes_on_when_its_parent_is_back(
        self, store: Store
    ) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent", session="s", while_waiting="release")
        await start(store, "stranger", session="s")
        await suspend(store, parent, 2)
        assert await claim_ids(store) == ["stranger"]
        await self.child(store, "child", parent)
        assert await claim(store) == []
        await store.post("parent", MailKind.MESSAGE, "", b"", NOW)
        await end_of(store, "stranger")
        assert await claim_ids(store, limit=1) == ["parent"]
        assert await claim_ids(store) == ["child"]


class State:
    async def test_state_and_messages_are_written_with_the_entries(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run", session="s")
        written: list[StateWrite | MessageWrite] = [
            StateWrite("s", "a", b"1"),
            StateWrite("s", "b", b"2"),
            StateWrite("s", "a", b"3"),
            MessageWrite("s", b"first"),
            MessageWrite("s", b"second"),
            MessageWrite("other", b"not ours"),
        ]
        await do(store, append(run, step(2))._replace(session=written))
        assert await store.session_state("s") == {"a": b"3", "b": b"2"}
        messages = await store.session_messages("s")
        assert [payload for _, payload in messages] == [b"first", b"second"]
        assert await store.session_messages("s", after=messages[0][0]) == messages[1:]
        written = [StateWrite("s", "a", None), StateWrite("s", "absent", None)]
        await do(store, append(run, step(3))._replace(session=written))
        assert await store.session_state("s") == {"b": b"2"}
        assert await store.session_state("nobody") == {}

    async def test_a_superseded_worker_changes_no_state(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run", session="s")
        await store.reap("w1", NOW, dead=True)
        await worker(store, "w2")
        await claim(store, "w2")
        written: list[StateWrite | MessageWrite] = [
            StateWrite("s", "a", b"1"),
            MessageWrite("s", b"m"),
        ]
        assert_lease_lost(await do(store, append(run, step(2))._replace(session=written)))
        assert await store.session_state("s") == {}
        assert await store.session_messages("s") == []

    async def test_state_outlives_the_runs_of_its_session(self, store: Store) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run", session="s")
        written = [StateWrite("s", "a", b"1")]
        await do(store, append(run, step(2))._replace(session=written))
        await end(store, run, 3)
        await store.prune(NOW + SECOND, 10)
        assert await store.get("run") is None
        assert await store.session_state("s") == {"a": b"1"}
        assert (await start(store, "next", session="s")).status is Status.PENDING
