"""Queues and their limits, and limiters that all workers share."""

from __future__ import annotations

import pytest

from holdfast.errors import UnknownQueue
from holdfast.store.base import ContinueAs, Reservation, Start, Started, Store
from holdfast.testing.conformance.given import (
    NOW,
    SECOND,
    WORKFLOW,
    Bell,
    append,
    claim,
    claim_ids,
    do,
    end_of,
    new_run,
    row,
    start,
    step,
    suspend,
    worker,
)
from holdfast.types import MailKind, QueueRow


async def fill(store: Store, count: int, name: str = "run", **fields: object) -> list[str]:
    ids = [f"{name}-{n}" for n in range(count)]
    await store.commit([Start(new_run(id, **fields)) for id in ids])
    return ids


async def at_once(store: Store, run: str, **fields: object) -> bool:
    """Is a run claimed with its start?"""
    (started,) = await store.commit([Start(new_run(run, **fields), claim_for="w1")])
    assert isinstance(started, Started) and started.created
    return started.claimed


class Limits:
    async def test_no_more_runs_of_a_queue_are_owned_than_it_allows(self, store: Store) -> None:
        await store.declare([QueueRow("q", concurrency=3)])
        await fill(store, 5, queue="q")
        for id in ("w1", "w2"):
            await worker(store, id)
        first = await claim_ids(store, "w1", limit=2)
        second = await claim_ids(store, "w2")
        assert (len(first), len(second)) == (2, 1)
        assert await claim(store, "w1") == []
        await end_of(store, first[0])
        assert len(await claim_ids(store, "w2")) == 1

    async def test_a_queue_may_limit_each_worker(self, store: Store) -> None:
        await store.declare([QueueRow("q", concurrency=3, per_worker=2)])
        await fill(store, 5, queue="q")
        for id in ("w1", "w2"):
            await worker(store, id)
        assert len(await claim_ids(store, "w1")) == 2
        assert len(await claim_ids(store, "w2")) == 1
        assert await store.next_ready([WORKFLOW], worker="w1") is None

    async def test_a_full_queue_does_not_hold_up_others(self, store: Store) -> None:
        await store.declare([QueueRow("q", concurrency=1)])
        await worker(store)
        await fill(store, 3, queue="q", priority=9)
        await start(store, "other", queue="free")
        assert sorted(await claim_ids(store)) == ["other", "run-0"]
        await start(store, "later", queue="free", ready_at=NOW + 7)
        assert await store.next_ready([WORKFLOW]) == NOW + 7
        await start(store, "another")
        assert await claim_ids(store) == ["another"]

    async def test_a_run_that_suspends_frees_its_place_and_needs_one_again(
        self, store: Store
    ) -> None:
        await store.declare([QueueRow("q", concurrency=1)])
        await worker(store)
        await fill(store, 2, queue="q")
        (first,) = await claim(store)
        bell = Bell(store)
        await suspend(store, first.row, 2)
        await bell.wait()  # somebody may take its place
        (second,) = await claim(store)
        assert second.row.id == "run-1"
        await store.post("run-0", MailKind.MESSAGE, "", b"", NOW)
        assert await claim(store) == []
        await end_of(store, "run-1")
        assert await claim_ids(store) == ["run-0"]

    async def test_a_dead_workers_places_are_free_again(self, store: Store) -> None:
        await store.declare([QueueRow("q", concurrency=2)])
        await fill(store, 2, queue="q")
        await worker(store, "dead")
        assert len(await claim_ids(store, "dead")) == 2
        await worker(store)
        assert await claim(store) == []
        await store.reap("dead", NOW, dead=True)
        assert len(await claim_ids(store)) == 2

    async def test_a_start_is_not_claimed_at_once_where_the_queue_has_limits(
        self, store: Store
    ) -> None:
        await worker(store)
        assert await at_once(store, "free", queue="q")
        await store.declare([QueueRow("q", concurrency=5)])
        assert not await at_once(store, "limited", queue="q")
        assert not await at_once(store, "in a session", queue="q", session="s")

    async def test_a_start_does_not_overtake_those_that_wait(self, store: Store) -> None:
        await worker(store)
        await start(store, "asleep", queue="q", ready_at=NOW + 1)
        await start(store, "asleep, with a key", queue="q", ready_at=NOW + 1, fairness_key="a")
        assert await at_once(store, "first", queue="q")
        await start(store, "waits", queue="q", priority=3)
        assert not await at_once(store, "second", queue="q")
        assert not await at_once(store, "third", queue="q", session="s")
        assert await at_once(store, "urgent", queue="q", priority=4)
        assert await at_once(store, "elsewhere", queue="other")
        await start(store, "has a key", queue="keyed", fairness_key="a")
        assert not await at_once(store, "fourth", queue="keyed")

    async def test_the_last_declaration_counts(self, store: Store) -> None:
        await worker(store)
        await store.declare([QueueRow("q", concurrency=1), QueueRow("q", concurrency=2)])
        await fill(store, 9, queue="q")
        assert len(await claim_ids(store)) == 2
        bell = Bell(store)
        await store.declare([QueueRow("q", concurrency=4)])
        await bell.wait()
        assert len(await claim_ids(store)) == 2
        await store.declare([QueueRow("q")])
        assert len(await claim_ids(store)) == 5

    async def test_a_paused_queue_gives_nothing_until_it_is_resumed(self, store: Store) -> None:
        await worker(store)
        await store.declare([QueueRow("q", concurrency=5)])
        await fill(store, 2, queue="q")
        await store.pause_queue("q")
        await store.declare([QueueRow("q", concurrency=6)])  # who restarts does not resume it
        assert await claim(store) == []
        assert await store.next_ready([WORKFLOW]) is None
        bell = Bell(store)
        await store.pause_queue("q", paused=False)
        await bell.wait()
        assert await store.next_ready([WORKFLOW]) == NOW
        assert len(await claim_ids(store)) == 2

    async def test_a_queue_that_nobody_declared_can_be_paused_if_it_is_in_use(
        self, store: Store
    ) -> None:
        await worker(store)
        with pytest.raises(UnknownQueue, match="'q'"):
            await store.pause_queue("q")
        with pytest.raises(UnknownQueue):
            await store.pause_queue("q", paused=False)
        await start(store, "run", queue="q")
        await store.pause_queue("q")
        await store.pause_queue("default")
        assert await claim(store) == []
        assert not await at_once(store, "other")
        await store.pause_queue("q", paused=False)
        assert await claim_ids(store) == ["run"]

    async def test_queues_are_listed_with_how_busy_they_are(self, store: Store) -> None:
        await worker(store)
        await store.declare(
            [
                QueueRow("b", concurrency=1, per_worker=2, rate_count=3, rate_micros=9 * SECOND),
                QueueRow("c"),
            ]
        )
        await start(store, "early", queue="b", ready_at=NOW - 5)
        await fill(store, 2, queue="b")
        await start(store, "asleep", queue="a", ready_at=NOW + 1)
        await store.pause_queue("c")
        await claim(store)
        b = QueueRow("b", 1, 2, 3, 9 * SECOND, 1, NOW + 3 * SECOND, False, 1, 2, NOW)
        assert await store.queues(NOW) == [QueueRow("a"), b, QueueRow("c", paused=True)]

    async def test_text_that_looks_like_sql_is_only_a_name(self, store: Store) -> None:
        await worker(store)
        evil = "'; DROP TABLE queues; --"
        await store.declare([QueueRow(evil, concurrency=1)])
        await fill(store, 2, queue=evil, fairness_key=evil)
        assert len(await claim_ids(store)) == 1
        assert (await row(store, "run-1")).fairness_key == evil


class Rates:
    async def test_first_claims_are_spread_over_the_period(self, store: Store) -> None:
        await worker(store)
        await store.declare([QueueRow("q", rate_count=2, rate_micros=SECOND)])
        await fill(store, 4, queue="q")
        assert await claim_ids(store) == ["run-0"]
        assert await claim(store) == []
        assert await store.next_ready([WORKFLOW]) == NOW + SECOND // 2
        assert await claim(store, now=NOW + SECOND // 2 - 1) == []
        assert await claim_ids(store, now=NOW + SECOND // 2) == ["run-1"]
        # Time that passed unused is not saved up.
        assert await claim_ids(store, now=NOW + 9 * SECOND) == ["run-2"]

    async def test_a_burst_goes_at_once_and_is_paid_for_later(self, store: Store) -> None:
        await worker(store)
        await store.declare([QueueRow("q", rate_count=1, rate_micros=SECOND, rate_burst=3)])
        await fill(store, 9, queue="q")
        assert await claim_ids(store) == ["run-0", "run-1", "run-2"]
        assert await store.next_ready([WORKFLOW]) == NOW + SECOND
        assert await claim_ids(store, now=NOW + SECOND) == ["run-3"]
        assert await claim(store, now=NOW + SECOND) == []
        assert len(await claim_ids(store, now=NOW + 3 * SECOND)) == 2

    async def test_no_period_sees_more_than_the_rate_says(self, store: Store) -> None:
        await worker(store)
        await store.declare([QueueRow("q", rate_count=7, rate_micros=SECOND)])
        await fill(store, 60, queue="q")
        times: list[int] = []
        for now in range(NOW, NOW + 6 * SECOND, SECOND // 50):
            times += [now] * len(await claim_ids(store, now=now, limit=5))
        assert len(times) > 30
        for since in times:
            assert sum(since <= at < since + SECOND for at in times) <= 7

    async def test_resumed_runs_do_not_pay_again(self, store: Store) -> None:
        await worker(store)
        await store.declare([QueueRow("q", rate_count=1, rate_micros=SECOND)])
        await fill(store, 3, queue="q")
        (first,) = await claim(store)
        await suspend(store, first.row, 2, ready_at=NOW + 1)
        assert await store.next_ready([WORKFLOW]) == NOW + 1
        (again,) = await claim(store, now=NOW + 1)
        assert (again.row.id, again.row.epoch) == ("run-0", 2)
        assert await claim(store, now=NOW + 1) == []
        afresh = append(again.row, step(4), then=ContinueAs(b"[]", b"digest"), at=NOW + 2)
        await do(store, afresh)
        assert await claim_ids(store, now=NOW + 2) == ["run-0"]
        assert await claim_ids(store, now=NOW + SECOND) == ["run-1"]

    async def test_a_rate_holds_for_all_workers_and_keys_together(self, store: Store) -> None:
        await store.declare([QueueRow("q", rate_count=1, rate_micros=SECOND)])
        for id in ("w1", "w2"):
            await worker(store, id)
        for key in ("a", "b"):
            await fill(store, 2, key, queue="q", fairness_key=key)
        assert len(await claim_ids(store, "w1")) == 1
        assert await claim(store, "w2") == []
        assert await store.next_ready([WORKFLOW], worker="w2") == NOW + SECOND


class Limiters:
    async def test_places_are_given_at_the_rate(self, store: Store) -> None:
        one = Reservation("api", 10)
        assert await store.reserve([one], NOW) == [NOW]
        assert await store.reserve([one, one], NOW) == [NOW + 10, NOW + 20]
        assert await store.reserve([one], NOW + 25) == [NOW + 30]
        assert await store.reserve([one], NOW + 100) == [NOW + 100]

    async def test_a_burst_goes_at_once(self, store: Store) -> None:
        one = Reservation("api", 10, burst=3)
        assert await store.reserve([one] * 5, NOW) == [NOW, NOW, NOW, NOW + 10, NOW + 20]

    async def test_limiters_are_apart(self, store: Store) -> None:
        a, b = Reservation("a", 10), Reservation("b", 7)
        assert await store.reserve([b, a, b, a], NOW) == [NOW, NOW, NOW + 7, NOW + 10]
        assert await store.reserve([], NOW) == []

    async def test_a_limiter_that_is_held_off_admits_nobody_until_then(self, store: Store) -> None:
        one = Reservation("api", 10, burst=2)
        await store.hold_off("api", NOW + 100)
        await store.hold_off("api", NOW + 50)
        assert await store.reserve([one] * 3, NOW) == [NOW + 100, NOW + 100, NOW + 110]
        assert await store.reserve([Reservation("other", 10)], NOW) == [NOW]

    async def test_a_place_stands_unless_the_limiter_is_held_off_for_longer(
        self, store: Store
    ) -> None:
        assert await store.reserve([Reservation("api", 10)] * 3, NOW) == [NOW, NOW + 10, NOW + 20]
        mine = Reservation("api", 10, place=NOW + 10)
        assert await store.reserve([mine], NOW + 10) == [NOW + 10]
        assert await store.reserve([mine], NOW + 15) == [NOW + 10]
        await store.hold_off("api", NOW + 100)
        assert await store.reserve([mine], NOW + 15) == [NOW + 100]
        assert await store.reserve([Reservation("api", 10)], NOW + 15) == [NOW + 110]

    async def test_pruning_forgets_limiters_that_stand_idle(self, store: Store) -> None:
        one = Reservation("api", 10)
        await store.reserve([one], NOW)
        await store.hold_off("other", NOW + SECOND)
        await store.prune(NOW + 5, 10, now=NOW + 6, keep_ids_until=NOW)
        assert await store.reserve([one], NOW) == [NOW + 10]
        assert await store.reserve([Reservation("other", 10)], NOW) == [NOW + SECOND]
