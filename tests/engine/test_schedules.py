"""Schedules on the virtual clock: each tick has one run, at its time, whatever happened before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast import FakeClock, Holdfast, Schedule, Status
from holdfast.engine.schedule import CATCH_UP_MAX
from holdfast.errors import BadSchedule, UnknownSchedule, UnknownWorkflow
from holdfast.store.base import Ticked
from holdfast.testing import Environment
from holdfast.testing.kept_store import KeptStore
from holdfast.types import RunFilter, ScheduleRow

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@holdfast.step
async def note(text: str) -> str:
    return text


@holdfast.workflow
async def report(city: str, pages: int = 1) -> str:
    tick = holdfast.tick()
    assert tick is not None
    await holdfast.sleep(60)  # it leaves memory and is replayed
    assert holdfast.tick() == tick
    return await note(f"{city} {pages} {tick:%d %H:%M}")


@holdfast.workflow
async def empty() -> datetime | None:
    return holdfast.tick()


def nightly(**changes: Any) -> Schedule:
    given = {"cron": "0 3 * * *", "zone": "Europe/Berlin", **changes}
    return Schedule("nightly", report, "berlin", **given)


def clock_at(text: str) -> FakeClock:
    return FakeClock(datetime.fromisoformat(text).replace(tzinfo=UTC))


async def ids(env: Environment) -> list[str]:
    return [row.id for row in await env.app.list(RunFilter(limit=10_000, newest_first=False))]


async def only(env: Environment) -> ScheduleRow:
    (row,) = await env.app.schedules()
    return row


class Stage:
    """One store and one clock, and the apps that are opened and closed on them."""

    def __init__(self, start: str = "2026-01-01T00:00") -> None:
        self.clock = clock_at(start)
        self.store = KeptStore()
        self.store._kept.poll_seconds = 3600.0  # nothing is found by chance

    @asynccontextmanager
    async def play(self, *schedules: Schedule, store: Any = None) -> AsyncIterator[Environment]:
        env = Environment(
            [report, empty],
            schedules=schedules,
            clock=self.clock,
            store=store or self.store,
        )
        async with env:
            await env.settle()
            yield env

    def pass_time(self, by: timedelta) -> None:
        """While nobody is there."""
        self.clock.advance(by)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    await made.store.discard()


# Ticks


async def test_each_tick_starts_one_run_at_its_time(stage: Stage) -> None:
    async with stage.play(nightly()) as env:
        assert await ids(env) == []
        await env.advance(3 * DAY)
        names = [f"nightly@2026-01-0{n}T02:00:00Z" for n in (1, 2, 3)]
        assert await ids(env) == names
        rows = [await env.app.row(name) for name in names]
        assert [row.status for row in rows] == [Status.COMPLETED] * 3
        created = [f"{datetime.fromtimestamp(row.created_at / 1e6, UTC):%d %H:%M}" for row in rows]
        assert created == ["01 02:00", "02 02:00", "03 02:00"]
        assert await env.app.result(names[1]) == "berlin 1 02 02:00"
        last = await only(env)
        assert (last.last_run, last.last_at) == (names[2], rows[2].created_at)


async def test_an_interval_ticks_where_it_would_for_everybody() -> None:
    stage = Stage("2026-01-01T05:59:59")
    async with stage.play(Schedule("often", empty, every=6 * HOUR)) as env:
        await env.advance(13 * HOUR)
        assert await ids(env) == [f"often@2026-01-01T{hour}:00:00Z" for hour in ("06", "12", "18")]
    await stage.store.discard()


async def test_arguments_and_options_reach_the_run(stage: Stage) -> None:
    schedule = Schedule(
        "nightly",
        report.with_options(priority=3),
        "berlin",
        cron="0 3 * * *",
        kwargs={"pages": 2},
        options={"session": "s", "deadline": DAY},
    )
    async with stage.play(schedule) as env:
        await env.advance(4 * HOUR)
        (id,) = await ids(env)
        row = await env.app.row(id)
        assert (row.priority, row.session) == (3, "s")
        assert row.deadline_at == row.created_at + DAY // timedelta(microseconds=1)
        assert await env.app.result(id) == "berlin 2 01 03:00"


async def test_the_tick_is_known_in_steps_and_forks_and_to_nobody_else(stage: Stage) -> None:
    assert holdfast.tick() is None

    @holdfast.step
    async def inside() -> datetime | None:
        return holdfast.tick()

    @holdfast.workflow
    async def asks() -> list[datetime | None]:
        return [holdfast.tick(), await inside(), await holdfast.child(empty)]

    env = Environment(
        [asks, empty],
        schedules=[Schedule("s", asks, every=HOUR)],
        clock=stage.clock,
        store=stage.store,
    )
    async with env:
        await env.advance(HOUR)
        tick = datetime(2026, 1, 1, 1, tzinfo=UTC)
        assert await env.app.result("s@2026-01-01T01:00:00Z") == [tick, tick, None]
        forked = await env.app.fork("s@2026-01-01T01:00:00Z", before="/inside#0", id="fork")
        await env.settle()
        assert await forked.result() == [tick, tick, None]
        run = await env.start(empty)
        await env.settle()
        assert await run.result() is None


async def test_ticks_go_by_the_clocks_of_the_zone() -> None:
    for start, expected in {
        "2026-03-27T12:00": ["28T01:30", "29T01:00", "30T00:30"],  # 29 March has no 02:30
        "2026-10-23T12:00": ["24T00:30", "25T00:30", "26T01:30"],  # 25 October has two
    }.items():
        stage = Stage(start)
        async with stage.play(nightly(cron="30 2 * * *")) as env:
            await env.advance(3 * DAY)
            assert [id.partition("@")[2][8:16] for id in await ids(env)] == expected
        await stage.store.discard()


async def test_a_session_keeps_the_runs_of_a_schedule_apart(stage: Stage) -> None:
    @holdfast.workflow
    async def slow() -> None:
        await holdfast.sleep(90 * 60)

    options = {"session": "one at a time", "on_busy": "reject"}
    schedule = Schedule("hourly", slow, every=HOUR, options=options)
    async with Environment([slow], schedules=[schedule]) as env:
        await env.advance(4 * HOUR)
        assert [id[18:20] for id in await ids(env)] == ["01", "03"]
        assert (await only(env)).last_run == "hourly@2026-01-01T03:00:00Z"


# Missed ticks


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("skip", []), ("latest", ["10T02"]), ("all", [f"{n:02d}T02" for n in range(2, 11)])],
)
async def test_after_a_long_silence_ticks_are_caught_up_with(
    stage: Stage, policy: Any, expected: list[str]
) -> None:
    schedule = nightly(catch_up=policy)
    async with stage.play(schedule) as env:
        await env.advance(DAY)
    stage.pass_time(9 * DAY)
    async with stage.play(schedule) as env:
        seen = [id.partition("@")[2][8:13] for id in await ids(env)]
        assert seen == ["01T02", *expected]
        await env.advance(DAY)
        assert (await ids(env))[-1] == "nightly@2026-01-11T02:00:00Z"
        assert len(await ids(env)) == len(expected) + 2


async def test_a_thousand_missed_ticks_are_caught_up_with_and_no_more(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    schedule = Schedule("often", empty, every=timedelta(minutes=1), catch_up="all")
    async with stage.play(schedule):
        pass
    stage.pass_time(3 * DAY)
    async with stage.play(schedule) as env:
        found = await ids(env)
        assert len(found) == CATCH_UP_MAX
        assert found[-1] == "often@2026-01-04T00:00:00Z" and found == sorted(found)
        assert [r.levelname for r in caplog.records if "more than 1000 ticks" in r.message] == [
            "WARNING"
        ]


async def test_a_restart_drops_no_tick_that_has_just_come(stage: Stage) -> None:
    schedule = nightly(catch_up="skip")
    async with stage.play(schedule):
        pass
    stage.pass_time(2 * HOUR + timedelta(seconds=59))
    async with stage.play(schedule) as env:
        assert await ids(env) == ["nightly@2026-01-01T02:00:00Z"]


# What people want of them


async def test_a_paused_schedule_does_not_tick_and_makes_nothing_up_for_it(stage: Stage) -> None:
    async with stage.play(nightly(catch_up="all")) as env:
        await env.app.pause_schedule("nightly")
        await env.app.pause_schedule("nightly")
        await env.advance(3 * DAY)
        assert await ids(env) == [] and (await only(env)).paused
        async with stage.play(nightly(catch_up="all")) as other:
            assert (await only(other)).paused, "to declare it is not to resume it"
        await env.app.resume_schedule("nightly")
        await env.app.resume_schedule("nightly")
        await env.advance(DAY)
        assert await ids(env) == ["nightly@2026-01-04T02:00:00Z"]


async def test_resuming_what_is_not_paused_drops_nothing(stage: Stage) -> None:
    async with stage.play(nightly()):
        pass
    stage.pass_time(DAY)
    app = Holdfast(stage.store, clock=stage.clock, worker=False)
    async with app:
        await app.resume_schedule("nightly")
    async with stage.play() as env:
        assert await ids(env) == ["nightly@2026-01-01T02:00:00Z"]


async def test_a_trigger_starts_a_run_beside_the_ticks(stage: Stage) -> None:
    async with stage.play(nightly()) as env:
        before = await only(env)
        run = await env.app.trigger_schedule("nightly")
        await env.app.pause_schedule("nightly")
        second = await env.app.trigger_schedule("nightly")
        assert run.id.startswith("nightly@2026-01-01T00:00:00Z~") and run.id != second.id
        await env.advance(HOUR)
        assert await run.result() == await second.result() == "berlin 1 01 00:00"
        after = await only(env)
        assert (after.next_at, after.last_run) == (before.next_at, None)


async def test_a_deleted_schedule_is_gone_until_it_is_declared_again(stage: Stage) -> None:
    async with stage.play(nightly()) as env:
        await env.app.delete_schedule("nightly")
        await env.advance(DAY)
        assert await ids(env) == [] and await env.app.schedules() == []
        for act in ("pause", "resume", "trigger", "delete"):
            with pytest.raises(UnknownSchedule, match="no schedule 'nightly'; known are: none"):
                await getattr(env.app, f"{act}_schedule")("nightly")
    async with stage.play(nightly()) as env:
        assert (await only(env)).name == "nightly"


# Declarations


async def test_what_is_declared_again_is_left_alone(stage: Stage) -> None:
    async with stage.play(nightly()) as env:
        await env.advance(DAY)
        before = await only(env)
    async with stage.play(nightly(cron=" 0  3 * * * ")) as env:
        assert await only(env) == before


async def test_a_changed_declaration_counts_anew_only_if_it_ticks_otherwise(stage: Stage) -> None:
    async with stage.play(nightly()):
        pass
    stage.pass_time(DAY)  # one tick is missed
    other = Schedule("nightly", report, "bonn", cron="0 3 * * *", zone="Europe/Berlin")
    async with stage.play(other) as env:
        assert await env.result(env.app.get("nightly@2026-01-01T02:00:00Z")) == "bonn 1 01 02:00"
    stage.pass_time(DAY)
    async with stage.play(nightly(cron="0 4 * * *")) as env:
        assert len(await ids(env)) == 1, "of the old ticks nobody speaks any more"
        await env.advance(DAY)
        assert (await ids(env))[1:] == ["nightly@2026-01-03T03:00:00Z"]
    async with stage.play(nightly(cron="0 4 * * *", zone="UTC")) as env:
        await env.advance(DAY)
        assert (await ids(env))[2:] == ["nightly@2026-01-04T04:00:00Z"]


async def test_a_schedule_that_nobody_declares_stays_and_ticks(stage: Stage) -> None:
    async with stage.play(nightly()):
        pass
    async with stage.play() as env:
        await env.advance(DAY)
        assert await ids(env) == ["nightly@2026-01-01T02:00:00Z"]


async def test_only_who_serves_the_workflow_makes_its_ticks(stage: Stage) -> None:
    async with stage.play(nightly()):
        pass
    async with Environment([empty], clock=stage.clock, store=stage.store) as env:
        await env.advance(DAY)
        assert await ids(env) == []
    async with stage.play() as env:
        assert await ids(env) == ["nightly@2026-01-01T02:00:00Z"]


async def test_apps_that_open_at_once_agree_on_what_they_declare(stage: Stage) -> None:
    apps = [
        Holdfast(
            stage.store,
            workflows=[report],
            schedules=[nightly(cron=f"{n} 3 * * *")],
            clock=stage.clock,
            worker=False,
        )
        for n in range(5)
    ]
    await stage.store.open()
    await asyncio.gather(*(app.open() for app in apps))
    (row,) = await apps[0].schedules()
    assert row.cron == "4 3 * * *"
    for app in apps:
        await app.close()


def test_names_and_workflows_are_checked() -> None:
    with pytest.raises(BadSchedule, match="two schedules are named 'nightly'"):
        Holdfast(workflows=[report], schedules=[nightly(), nightly()])
    with pytest.raises(UnknownWorkflow, match="of schedule 'nightly' is not listed"):
        Holdfast(workflows=[empty], schedules=[nightly()])
    with pytest.raises(BadSchedule, match=r"is not a holdfast\.Schedule"):
        Holdfast(workflows=[report], schedules=[report])  # type: ignore[list-item]


# Crashes, and others


class DeadlyStore(KeptStore):
    """A worker that makes a tick dies right before the commit, or right after it."""

    def __init__(self, after: bool) -> None:
        super().__init__()
        self.after = after
        self.is_armed = True
        self.died = asyncio.Event()

    async def tick(self, *args: Any, **kwargs: Any) -> Ticked:
        if self.is_armed and not self.after:
            await self._die()
        ticked = await self._kept.tick(*args, **kwargs)
        if self.is_armed:
            await self._die()
        return ticked

    async def _die(self) -> None:
        self.is_armed = False
        self.died.set()
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("policy", ["skip", "latest", "all"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_around_the_commit_neither_loses_nor_doubles_a_tick(
    after: bool, policy: Any
) -> None:
    store = DeadlyStore(after)
    env = Environment([report], schedules=[nightly(catch_up=policy)], store=store)
    async with env:
        await env.settle()
        assert isinstance(env.clock, FakeClock)
        env.clock.advance(2 * HOUR)
        await store.died.wait()
        await env.crash()
        await env.advance(HOUR)
        assert await ids(env) == ["nightly@2026-01-01T02:00:00Z"]
        await env.advance(DAY)
        assert len(await ids(env)) == 2
        assert env.started.count("/note#0") == 2
    await store.discard()


async def test_two_workers_make_one_run_of_each_tick(stage: Stage) -> None:
    schedule = Schedule("often", empty, every=timedelta(minutes=1))
    made: list[Ticked] = []

    class Counting(KeptStore):
        async def tick(self, *args: Any, **kwargs: Any) -> Ticked:
            await asyncio.sleep(0)  # so that both have read before one writes
            ticked = await self._kept.tick(*args, **kwargs)
            made.append(ticked)
            return ticked

    store = Counting()
    async with stage.play(schedule, store=store) as one, stage.play(schedule, store=store) as two:
        for _ in range(20):
            stage.clock.advance(timedelta(minutes=1))
            await asyncio.gather(one.settle(), two.settle())
        assert len(await ids(one)) == 20
        assert sum(ticked.moved for ticked in made) == 20
        assert len(made) > 20, "both tried"
    await store.discard()


class Telling(KeptStore):
    """Says when a tick was made, and remembers all it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.ticked = asyncio.Event()
        self.asked: list[str] = []

    async def tick(self, *args: Any, **kwargs: Any) -> Ticked:
        made = await self._kept.tick(*args, **kwargs)
        self.ticked.set()
        return made

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return super().__getattr__(name)


async def test_a_schedule_that_cannot_tick_holds_nobody_up(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    store = Telling()
    often = Schedule("often", empty, every=timedelta(minutes=10))
    async with stage.play(often, store=store) as env:
        row = (await only(env))._replace(next_at=env.clock.now(), cron="0 * * * *")
        await store.put_schedule(row._replace(name="a zone", zone="Mars/Olympus"), seen=None)
        await store.put_schedule(row._replace(name="cron", cron="? * * * *"), seen=None)
        env.worker.wake()
        for _ in range(6):
            store.ticked.clear()
            stage.clock.advance(timedelta(minutes=10))
            await store.ticked.wait()
        troubles = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
        assert any("no time zone 'Mars/Olympus'" in trouble for trouble in troubles)
        assert any("no cron expression" in trouble for trouble in troubles)
        assert len(troubles) <= 2 * 7, "once in a while, not at every turn"
        await env.app.delete_schedule("cron")
        await env.app.delete_schedule("a zone")
        await env.settle()
        assert len(await ids(env)) == 6
    await store.discard()


async def test_a_worker_without_schedules_asks_no_more_than_before() -> None:
    store = Telling()
    store._kept.poll_seconds = 3600.0  # it does not happen to look around just then
    looked = asyncio.Event()
    async with Environment([empty], store=store) as env:
        await env.settle()
        store.asked.clear()
        env.worker.on_looked = lambda at: looked.set()
        env.worker.wake()
        await looked.wait()
        assert [name for name in store.asked if name != "poll_seconds"] == ["claim", "next_due"]
    await store.discard()
