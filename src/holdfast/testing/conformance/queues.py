"""Queues: their limits, who goes first in them, and limiters that all workers share."""

from __future__ import annotations

from collections import Counter

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
from holdfast.types import MailKind, QueueRow, Status


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


class Fairness:
    async def served(self, store: Store, rounds: int, limit: int = 1) -> Counter[str]:
        """Whose runs were claimed, and at once completed."""
        counts: Counter[str] = Counter()
        for _ in range(rounds):
            for claimed in await claim(store, limit=limit):
                counts[claimed.row.fairness_key or claimed.row.workflow] += 1
                await end_of(store, claimed.row.id)
        return counts

    async def test_a_long_line_of_one_key_does_not_keep_another_waiting(self, store: Store) -> None:
        await worker(store)
        await fill(store, 500, "busy", fairness_key="busy", ready_at=NOW - SECOND)
        assert await self.served(store, 10) == {"busy": 10}
        await fill(store, 5, "small", fairness_key="small")
        assert await self.served(store, 10) == {"busy": 5, "small": 5}
        assert await self.served(store, 2) == {"busy": 2}

    async def test_a_claim_of_many_is_shared_as_well(self, store: Store) -> None:
        await worker(store)
        for key, count in (("a", 100), ("b", 100), ("c", 3)):
            await fill(store, count, key, fairness_key=key)
        assert await self.served(store, 1, limit=23) == {"a": 10, "b": 10, "c": 3}

    async def test_who_was_away_neither_makes_up_for_it_nor_pays(self, store: Store) -> None:
        await worker(store)
        await fill(store, 1, "first", fairness_key="away")
        await fill(store, 200, "busy", fairness_key="busy")
        await fill(store, 200, "other", fairness_key="other")
        await self.served(store, 101)
        await fill(store, 50, "back", fairness_key="away")
        counts = await self.served(store, 60)
        assert all(19 <= count <= 21 for count in counts.values()), counts

    async def test_keys_are_no_one_elses_in_another_queue(self, store: Store) -> None:
        await worker(store)
        await fill(store, 50, "one", queue="q1", fairness_key="a")
        await self.served(store, 40)
        await fill(store, 50, "two", queue="q2", fairness_key="a")
        await fill(store, 50, "three", queue="q2", fairness_key="b")
        counts = await self.served(store, 1, limit=30)
        assert counts == {"a": 20, "b": 10}

    async def test_workflows_and_queues_take_turns(self, store: Store) -> None:
        await worker(store)
        await fill(store, 50, "early", workflow="w1", ready_at=NOW - 1)
        await fill(store, 50, "late", workflow="w2")
        await fill(store, 50, "apart", workflow="w2", queue="other")
        claimed = await claim(store, workflows=["w1", "w2"], limit=30)
        lanes = Counter((c.row.workflow, c.row.queue) for c in claimed)
        assert set(lanes.values()) == {10} and len(lanes) == 3

    async def test_one_at_a_time_nobody_starves_either(self, store: Store) -> None:
        await worker(store)
        await fill(store, 60, "early", workflow="w1", ready_at=NOW - 1)
        await fill(store, 60, "late", workflow="w2")
        await fill(store, 60, "keyed", workflow="w2", fairness_key="a")
        counts: Counter[str] = Counter()
        for _ in range(60):
            (claimed,) = await claim(store, workflows=["w1", "w2"], limit=1)
            counts[claimed.row.id.partition("-")[0]] += 1
        # By chance; to get fewer than this is one in 10,000,000,000.
        assert len(counts) == 3 and min(counts.values()) >= 2, counts

    async def test_high_priority_goes_before_any_share(self, store: Store) -> None:
        await worker(store)
        await fill(store, 9, "busy", fairness_key="busy", priority=1)
        await fill(store, 9, "small", fairness_key="small")
        assert await self.served(store, 9) == {"busy": 9}
        assert await self.served(store, 9) == {"small": 9}

    async def test_inside_of_a_key_the_longest_ready_goes_first(self, store: Store) -> None:
        await worker(store)
        (slept,) = await fill(store, 1, "slept", fairness_key="a")
        (claimed,) = await claim(store)
        await suspend(store, claimed.row, 2, ready_at=NOW + 5)
        await fill(store, 1, "late", fairness_key="a", ready_at=NOW + 9, created_at=NOW + 9)
        await fill(store, 1, "early", fairness_key="a", ready_at=NOW + 1, created_at=NOW + 1)
        in_order = [(await claim_ids(store, limit=1, now=NOW + 9))[0] for _ in range(3)]
        assert in_order == ["early-0", slept, "late-0"]

    async def test_sleepers_of_one_key_do_not_keep_another_waiting(self, store: Store) -> None:
        await worker(store)
        await fill(store, 300, "busy", fairness_key="busy", ready_at=NOW + 1)
        await fill(store, 3, "small", fairness_key="small", ready_at=NOW + 2)
        assert await store.next_ready([WORKFLOW]) == NOW + 1
        counts = Counter(
            [(await claim(store, limit=1, now=NOW + 2))[0].row.fairness_key for _ in range(6)]
        )
        assert counts == {"busy": 3, "small": 3}

    async def test_more_keys_than_a_claim_looks_at_are_all_served(self, store: Store) -> None:
        await worker(store)
        keys = [f"tenant {n}" for n in range(2500)]
        runs = [Start(new_run(key, fairness_key=key)) for key in keys]
        for n in range(0, len(runs), 500):
            await store.commit(runs[n : n + 500])
        counts: Counter[str] = Counter()
        for _ in range(60):
            claimed = await claim_ids(store, limit=250)
            if not claimed:
                break
            counts.update(claimed)
        assert counts == Counter(keys)

    async def test_suspects_with_a_key_go_alone(self, store: Store) -> None:
        await start(store, "suspect", fairness_key="a")
        for _ in range(2):
            await worker(store, "victim")
            await claim(store, "victim", alone=True)
            await store.reap("victim", NOW, dead=True)
        await worker(store)
        assert await store.next_ready([WORKFLOW], alone=False) is None
        assert await claim(store) == []
        await start(store, "innocent", fairness_key="b", priority=1)
        assert await claim_ids(store, alone=True) == ["innocent"]
        assert await claim_ids(store, alone=True) == ["suspect"]

    async def test_a_forked_or_continued_run_keeps_its_key(self, store: Store) -> None:
        await worker(store)
        await start(store, "run", fairness_key="a")
        (claimed,) = await claim(store)
        assert claimed.row.fairness_key == "a"
        await do(store, append(claimed.row, then=ContinueAs(b"[]", b"digest")))
        assert (await row(store, "run")).fairness_key == "a"
        forked = await store.fork("run", 1, new_run("fork", fairness_key="b"))
        assert forked.row.fairness_key == (await row(store, "fork")).fairness_key == "b"

    async def test_sessions_of_keys_go_in_order(self, store: Store) -> None:
        await worker(store)
        await fill(store, 3, fairness_key="a", session="s")
        assert await claim_ids(store) == ["run-0"]
        assert await claim(store) == []
        await end_of(store, "run-0")
        assert await claim_ids(store) == ["run-1"]
        assert (await row(store, "run-2")).status is Status.PENDING

    async def test_pruning_forgets_who_stands_where_a_new_one_would(self, store: Store) -> None:
        await worker(store)
        await fill(store, 40, "busy", fairness_key="busy")
        await self.served(store, 20)
        await store.prune(NOW - 1, 10, now=NOW, keep_ids_until=NOW)
        await fill(store, 40, "small", fairness_key="small")
        counts = await self.served(store, 20)
        assert abs(counts["busy"] - counts["small"]) <= 2, counts


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

    async def test_pruning_forgets_limiters_that_stand_idle(self, store: Store) -> None:
        one = Reservation("api", 10)
        await store.reserve([one], NOW)
        await store.hold_off("other", NOW + SECOND)
        await store.prune(NOW + 5, 10, now=NOW + 6, keep_ids_until=NOW)
        assert await store.reserve([one], NOW) == [NOW + 10]
        assert await store.reserve([Reservation("other", 10)], NOW) == [NOW + SECOND]
