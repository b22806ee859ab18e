"""Who goes first: lanes of runs that share workers and queues."""

from __future__ import annotations

from collections import Counter

from holdfast.store.base import ContinueAs, Start, Store
from holdfast.testing.conformance.given import (
    NOW,
    SECOND,
    WORKFLOW,
    append,
    claim,
    claim_ids,
    do,
    end_of,
    new_run,
    row,
    start,
    suspend,
    worker,
)
from holdfast.testing.conformance.queues import fill
from holdfast.types import Status


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

    async def test_a_suspect_lets_those_go_first_that_have_waited_longer(
        self, store: Store
    ) -> None:
        for n in range(3):
            await start(store, f"suspect-{n}", workflow=f"w{n}", fairness_key="a" if n else "")
        for _ in range(2):
            await worker(store, "victim")
            await claim(store, "victim", workflows=["w0", "w1", "w2"], alone=True)
            await store.reap("victim", NOW, dead=True)
        await start(store, "innocent", workflow="w3", ready_at=NOW - 1)
        await start(store, "late", workflow="w3", ready_at=NOW + 1)
        await worker(store)
        served = [f"w{n}" for n in range(4)]
        taken = [
            await claim_ids(store, workflows=served, now=NOW + 1, alone=True) for _ in range(4)
        ]
        assert taken[0] == ["innocent", "late"]
        assert sorted(ids[0] for ids in taken[1:]) == [f"suspect-{n}" for n in range(3)]
        assert all(len(ids) == 1 for ids in taken[1:])

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
