"""Schedules: what is read was written, and each tick is made once, whoever makes it."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.errors import SessionBusy
from holdfast.store.base import Due, Refused, Started, Store, Ticked
from holdfast.testing.conformance.given import (
    NOW,
    SECOND,
    Bell,
    claim_ids,
    end_of,
    new_run,
    row,
    start,
    worker,
)
from holdfast.types import ScheduleRow, Status

NEXT = NOW + 10 * SECOND


def schedule(name: str = "nightly", **fields: Any) -> ScheduleRow:
    values: dict[str, Any] = {
        "workflow": "research",
        "input": b'["input"]',
        "digest": b"digest",
        "options": b'{"priority":1}',
        "cron": "0 3 * * *",
        "zone": "Europe/Berlin",
        "catch_up": "latest",
        "next_at": NOW,
        "updated_at": NOW - 5,
    }
    return ScheduleRow(name=name, **{**values, **fields})


async def put(store: Store, name: str = "nightly", **fields: Any) -> ScheduleRow:
    made = schedule(name, **fields)
    assert await store.put_schedule(made, seen=None)
    return made


async def only(store: Store, name: str = "nightly") -> ScheduleRow:
    return next(row for row in await store.schedules() if row.name == name)


async def tick(store: Store, seen: ScheduleRow, id: str = "nightly@now", **fields: Any) -> Ticked:
    return await store.tick(seen, NEXT, at=seen.next_at, run=new_run(id, **fields))


class Schedules:
    async def test_schedules_are_kept_as_they_were_given(self, store: Store) -> None:
        assert await store.schedules() == []
        made = [
            await put(store, "b", options=None, next_at=None),
            await put(store, "a", paused=True, catch_up="all", zone="UTC"),
        ]
        assert await store.schedules() == [made[1], made[0]]

    async def test_a_schedule_is_added_once(self, store: Store) -> None:
        first = await put(store)
        assert not await store.put_schedule(schedule(cron="* * * * *"), seen=None)
        assert await store.schedules() == [first]

    async def test_a_schedule_is_changed_only_from_what_was_seen(self, store: Store) -> None:
        first = await put(store)
        second = first._replace(cron="* * * * *", next_at=None, updated_at=NOW)
        assert await store.put_schedule(second, seen=first)
        assert await store.schedules() == [second]
        third = first._replace(cron="1 * * * *", updated_at=NOW + 1)
        assert not await store.put_schedule(third, seen=first)
        assert await store.put_schedule(third, seen=second)
        assert (await store.tick(third, NEXT)).moved
        assert not await store.put_schedule(first, seen=third), "it has ticked since"
        assert await store.schedules() == [third._replace(next_at=NEXT)]

    async def test_a_change_leaves_the_last_tick_alone(self, store: Store) -> None:
        await tick(store, await put(store), "nightly@1")
        seen = await only(store)
        assert await store.put_schedule(schedule(zone="UTC", updated_at=NOW), seen=seen)
        found = await only(store)
        assert (found.zone, found.last_at, found.last_run) == ("UTC", NOW, "nightly@1")

    async def test_a_deleted_schedule_is_gone_and_its_runs_stay(self, store: Store) -> None:
        seen = await put(store)
        await tick(store, seen, "nightly@1")
        assert await store.delete_schedule("nightly")
        assert not await store.delete_schedule("nightly")
        assert await store.schedules() == []
        assert await store.get("nightly@1") is not None
        assert not await store.put_schedule(seen, seen=seen)

    async def test_only_those_wanted_are_read(self, store: Store) -> None:
        await put(store, "due")
        await put(store, "later", next_at=NOW + 1)
        await put(store, "never", next_at=None)
        await put(store, "paused", paused=True)
        await put(store, "other", workflow="write")

        async def names(**which: Any) -> list[str]:
            return [row.name for row in await store.schedules(**which)]

        assert await names(due_by=NOW) == ["due", "other"]
        assert await names(workflows=["research"], due_by=NOW) == ["due"]
        assert await names(workflows=["research"]) == ["due", "later", "never", "paused"]
        assert await names(workflows=[]) == []

    async def test_the_next_tick_and_the_next_run_are_told_in_one_look(self, store: Store) -> None:
        assert await store.next_due(["research"]) == Due(None, None)
        await put(store, "paused", paused=True, next_at=NOW)
        await put(store, "never", next_at=None)
        await put(store, "other", workflow="write", next_at=NOW + 1)
        await put(store, "late", next_at=NOW + 2 * SECOND)
        await put(store, "soon", next_at=NOW + SECOND)
        due = await store.next_due(["research"])
        assert (due, due.first) == (Due(None, NOW + SECOND), NOW + SECOND)
        await start(store, "run", ready_at=NOW + 5)
        due = await store.next_due(["research"], alone=False)
        assert (due, due.first) == (Due(NOW + 5, NOW + SECOND), NOW + 5)
        assert (await store.next_due(["write"])).tick == NOW + 1
        assert await store.next_due([]) == Due(None, None)

    async def test_a_change_is_heard(self, store: Store) -> None:
        bell = Bell(store)
        seen = await put(store)
        await bell.wait()
        await tick(store, seen)
        await bell.wait()
        bell.stop()


class Ticks:
    async def test_a_tick_accepts_its_run_and_moves_the_schedule_on(self, store: Store) -> None:
        await worker(store)
        seen = await put(store)
        fields = {"priority": 3, "options": b'{"tick":1}', "queue": "q", "fairness_key": "f"}
        ticked = await tick(store, seen, "nightly@1", **fields)
        assert ticked.moved and isinstance(ticked.run, Started) and ticked.run.created
        found = await row(store, "nightly@1")
        assert found == ticked.run.row
        assert found.status is Status.PENDING
        assert {name: getattr(found, name) for name in fields} == fields
        assert await only(store) == seen._replace(next_at=NEXT, last_at=NOW, last_run="nightly@1")
        assert await claim_ids(store) == ["nightly@1"]

    async def test_the_same_tick_is_not_made_twice(self, store: Store) -> None:
        seen = await put(store)
        assert (await tick(store, seen, "nightly@1")).moved
        again = await tick(store, seen, "under another id")
        assert again == Ticked(moved=False)
        assert await store.get("under another id") is None

    async def test_of_many_that_make_one_tick_one_does(self, store: Store) -> None:
        seen = await put(store)
        made = await asyncio.gather(*(tick(store, seen, f"nightly@{n}") for n in range(8)))
        assert [one.moved for one in made].count(True) == 1
        runs = [await store.get(f"nightly@{n}") for n in range(8)]
        assert [one.moved for one in made] == [run is not None for run in runs]

    async def test_a_tick_whose_run_was_pruned_is_not_made_again(self, store: Store) -> None:
        await worker(store)
        seen = await put(store)
        await tick(store, seen, "nightly@1")
        assert await claim_ids(store) == ["nightly@1"]
        await end_of(store, "nightly@1")
        assert await store.prune(NOW + SECOND, 10) == 1
        assert not (await tick(store, seen, "nightly@1")).moved
        assert await store.get("nightly@1") is None

    async def test_nothing_ticks_that_was_changed_paused_or_deleted(self, store: Store) -> None:
        seen = await put(store)
        changed = seen._replace(input=b'["other"]', updated_at=NOW)
        assert await store.put_schedule(changed, seen=seen)
        assert not (await tick(store, seen)).moved, "its run would have the old input"
        paused = changed._replace(paused=True, updated_at=NOW + 1)
        assert await store.put_schedule(paused, seen=changed)
        assert not (await tick(store, paused)).moved
        assert await store.delete_schedule("nightly")
        assert not (await tick(store, paused)).moved
        assert await store.get("nightly@now") is None

    async def test_ticks_are_dropped_without_a_run(self, store: Store) -> None:
        seen = await put(store)
        assert await store.tick(seen, NEXT) == Ticked(moved=True)
        assert await only(store) == seen._replace(next_at=NEXT)
        assert await store.tick(seen, NEXT) == Ticked(moved=False)

    async def test_the_last_tick_leaves_no_next_one(self, store: Store) -> None:
        seen = await put(store)
        assert (await store.tick(seen, None, at=NOW, run=new_run("last"))).moved
        assert (await only(store)).next_at is None
        assert await store.next_due(["research"]) == Due(NOW, None)
        assert not (await tick(store, await only(store))).moved

    async def test_a_tick_whose_id_was_used_moves_on(self, store: Store) -> None:
        before = await start(store, "nightly@1")
        ticked = await tick(store, await put(store), "nightly@1")
        assert ticked == Ticked(moved=True, run=Started(before, created=False))
        assert (await only(store)).next_at == NEXT

    async def test_a_tick_into_a_busy_session_does_what_its_run_says(self, store: Store) -> None:
        await worker(store)
        seen = await put(store)
        assert (await tick(store, seen, "first", session="s")).moved
        seen = await only(store)
        refused = await store.tick(
            seen, NEXT + 1, at=NEXT, run=new_run("second", session="s", on_busy="reject")
        )
        assert refused.moved and isinstance(refused.run, Refused)
        assert isinstance(refused.run.error, SessionBusy)
        seen = await only(store)
        assert (seen.next_at, seen.last_at, seen.last_run) == (NEXT + 1, NEXT, "first")
        joined = await store.tick(
            seen, NEXT + 2, at=NEXT + 1, run=new_run("third", session="s", on_busy="join")
        )
        assert isinstance(joined.run, Started) and joined.run.joined
        assert (await only(store)).last_run == "first"
        seen = await only(store)
        queued = await store.tick(seen, NEXT + 3, at=NEXT + 2, run=new_run("fourth", session="s"))
        assert isinstance(queued.run, Started) and queued.run.created
        assert await claim_ids(store) == ["first"]
        assert (await only(store)).last_run == "fourth"
