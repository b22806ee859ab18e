"""When schedules tick: cron, zones whose clocks change, intervals, and what is caught up with."""

from __future__ import annotations

import itertools
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.clock import Micros, to_datetime, to_micros
from holdfast.engine.schedule import CATCH_UP_MAX, LATE_MAX, Move, moves
from holdfast.engine.ticks import every, ticks_of
from holdfast.errors import BadArguments, BadSchedule, HoldfastError
from holdfast.types import CatchUp, ScheduleRow
from tests.helpers.processes import ROOT, environment

MINUTE = 60_000_000


def at(text: str) -> Micros:
    return to_micros(datetime.fromisoformat(text).astimezone(UTC) - to_datetime(0))


def shown(ticks: list[Micros]) -> list[str]:
    return [f"{to_datetime(tick):%d %H:%M}" for tick in ticks]


def between(cron: str, zone: str, begin: str, end: str) -> list[str]:
    ticks = ticks_of(cron, zone).since(at(begin))
    return shown(list(itertools.takewhile(lambda tick: tick <= at(end), ticks)))


# Ticks


def test_a_cron_expression_means_the_time_of_its_zone():
    days = ("2026-01-01T00:00Z", "2026-01-03T00:00Z")
    assert between("0 3 * * *", "UTC", *days) == ["01 03:00", "02 03:00"]
    assert between("0 3 * * *", "Europe/Berlin", *days) == ["01 02:00", "02 02:00"]
    assert between("0 3 * * *", "Asia/Kolkata", *days) == ["01 21:30", "02 21:30"]
    assert between("30 9 * * FRI", "America/New_York", *days) == ["02 14:30"]


def test_an_hour_that_is_left_out_has_its_ticks_at_its_beginning():
    spring = ("2026-03-28T12:00Z", "2026-03-30T12:00Z")  # at 02:00 it is 03:00, that is 01:00 UTC
    assert between("30 2 * * *", "Europe/Berlin", *spring) == ["29 01:00", "30 00:30"]
    assert between("0,30 2 * * *", "Europe/Berlin", *spring) == [
        *("29 01:00", "30 00:00", "30 00:30"),
    ]
    assert between("30 3 * * *", "Europe/Berlin", *spring) == ["29 01:30", "30 01:30"]
    assert between("*/30 2 * * *", "Europe/Berlin", *spring) == ["30 00:00", "30 00:30"]


def test_an_hour_that_comes_twice_has_its_ticks_the_first_time():
    autumn = ("2026-10-24T12:00Z", "2026-10-26T12:00Z")  # at 03:00 it is 02:00, that is 01:00 UTC
    assert between("30 2 * * *", "Europe/Berlin", *autumn) == ["25 00:30", "26 01:30"]
    assert between("*/30 2 * * *", "Europe/Berlin", *autumn) == [
        *("25 00:00", "25 00:30", "25 01:00", "25 01:30", "26 01:00", "26 01:30"),
    ]
    hourly = ("2026-10-24T23:30Z", "2026-10-25T02:30Z")
    assert between("0 * * * *", "Europe/Berlin", *hourly) == ["25 00:00", "25 01:00", "25 02:00"]


def test_the_hour_that_comes_twice_is_not_gone_through_twice_by_whoever_asks_within_it():
    ticks = ticks_of("30 2 * * *", "Europe/Berlin")
    for now in ("2026-10-25T00:30Z", "2026-10-25T00:45Z", "2026-10-25T01:15Z", "2026-10-25T01:45Z"):
        assert ticks.after(at(now)) == at("2026-10-26T01:30Z")


def test_intervals_count_from_1970_whatever_the_clocks_do():
    ticks = ticks_of(every(timedelta(hours=6)), "UTC")
    assert ticks.after(at("2026-01-01T00:00Z")) == at("2026-01-01T06:00Z")
    assert ticks.after(at("2026-01-01T05:59:59Z")) == at("2026-01-01T06:00Z")
    assert shown(ticks.last(at("2026-01-02T01:00Z"), 3)) == ["01 12:00", "01 18:00", "02 00:00"]


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"]
CRONS = ["30 2 * * *", "0 * * * *", "*/15 1-3 * * *", "0 0 * * 0", "*/30 2 * * *", "0 12 L * *"]
CRONS += [every(timedelta(hours=7))]


@given(
    cron=st.sampled_from(CRONS),
    zone=st.sampled_from(ZONES),
    begin=st.datetimes(datetime(2025, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),
    count=st.integers(1, 30),
)
def test_whoever_asks_and_whenever_the_ticks_are_the_same(cron, zone, begin, count):
    ticks = ticks_of(cron, zone)
    start = at(begin.isoformat())
    forth = list(itertools.islice(ticks.since(start), count + 1))
    assert forth == sorted(set(forth)) and forth[0] > start
    one_by_one = [start]
    for _ in forth:
        one_by_one.append(ticks.after(one_by_one[-1]) or 0)
    assert one_by_one[1:] == forth
    assert ticks.last(forth[-1] - 1, count) == forth[:-1]
    assert ticks.last(forth[-2], count) == forth[:-1]


# What is caught up with


def due(catch_up: CatchUp, next_at: str, cron: str = "0 * * * *") -> ScheduleRow:
    return ScheduleRow(
        name="s",
        workflow="w",
        input=b"{}",
        digest=b"",
        options=None,
        cron=cron,
        zone="UTC",
        catch_up=catch_up,
        next_at=at(next_at),
        updated_at=0,
    )


def plan(row: ScheduleRow, now: str) -> list[tuple[str, str | None, str]]:
    def text(tick: Micros | None) -> str:
        return "" if tick is None else f"{to_datetime(tick):%H:%M}"

    return [(text(m.at), text(m.tick), text(m.next_at)) for m in moves(row, at(now))]


def test_a_tick_on_time_is_made_by_every_policy():
    for policy in ("skip", "latest", "all"):
        row = due(policy, "2026-01-01T03:00Z")
        assert plan(row, "2026-01-01T02:59:59Z") == []
        assert plan(row, "2026-01-01T03:00Z") == [("03:00", "03:00", "04:00")]


def test_missed_ticks_are_dropped_made_once_or_made_each():
    now = "2026-01-01T06:30Z"
    assert plan(due("skip", "2026-01-01T03:00Z"), now) == [("03:00", "", "07:00")]
    assert plan(due("latest", "2026-01-01T03:00Z"), now) == [("03:00", "06:00", "07:00")]
    assert plan(due("all", "2026-01-01T03:00Z"), now) == [
        *(("03:00", "03:00", "04:00"), ("04:00", "04:00", "05:00")),
        *(("05:00", "05:00", "06:00"), ("06:00", "06:00", "07:00")),
    ]


def test_a_tick_that_is_only_late_is_not_dropped():
    row = due("skip", "2026-01-01T03:00Z", "* * * * *")
    late = to_datetime(at("2026-01-01T03:00Z") + LATE_MAX).isoformat()
    assert plan(row, late) == [("03:00", "03:00", "03:01"), ("03:01", "03:01", "03:02")]
    assert plan(row, "2026-01-01T05:00:30Z") == [
        ("03:00", "", "05:00"),
        ("05:00", "05:00", "05:01"),
    ]


@pytest.mark.parametrize("cron", ["* * * * *", every(timedelta(minutes=1))])
def test_only_the_newest_thousand_are_caught_up_with(cron):
    row = due("all", "2026-01-01T00:00Z", cron)
    assert row.next_at is not None
    exact = list(moves(row, row.next_at + (CATCH_UP_MAX - 1) * MINUTE))
    assert [move.tick for move in exact] == [row.next_at + n * MINUTE for n in range(CATCH_UP_MAX)]
    first, *others = moves(row, row.next_at + 5 * CATCH_UP_MAX * MINUTE)
    assert first == Move(row.next_at, None, others[0].at, too_many=True)
    assert len(others) == CATCH_UP_MAX
    assert others[-1].tick == row.next_at + 5 * CATCH_UP_MAX * MINUTE


def test_years_of_missed_ticks_cost_no_more_than_a_few():
    row = due("latest", "1990-01-01T00:00Z", "* * * * * *")
    assert plan(row, "2026-01-01T00:00Z") == [("00:00", "00:00", "00:00")]
    row = due("all", "1990-01-01T00:00Z", every(timedelta(seconds=1)))
    assert sum(1 for _ in moves(row, at("2026-01-01T00:00Z"))) == CATCH_UP_MAX + 1


# Bad declarations


@holdfast.workflow
async def report(city: str, pages: int = 1) -> str:
    return city * pages


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"cron": "0 3 * *"}, "Wrong number of fields"),
        ({"cron": "61 3 * * *"}, "Bad minute"),
        ({"cron": "0 0 30 2 *"}, "Bad day-of-month"),
        ({"cron": ""}, "Wrong number of fields"),
        ({"cron": "@daily"}, "no cron expression"),
        ({"cron": "@every 5s"}, "there is `every`"),
        ({"cron": "0 3 * * *" + ",1" * 200}, "at most 200 characters"),
        ({"cron": 3}, "text, not 3"),
        ({"cron": "0 3 * * *", "zone": "Europe/Bonn"}, "no time zone 'Europe/Bonn'"),
        ({"cron": "0 3 * * *", "zone": "../../etc/passwd"}, "no time zone"),
        ({"cron": "0 3 * * *", "zone": ""}, "no time zone"),
        ({"cron": "0 3 * * *", "zone": None}, "text, not None"),
        ({}, "one of cron and every"),
        ({"cron": "0 3 * * *", "every": timedelta(hours=1)}, "one of cron and every"),
        ({"every": timedelta(milliseconds=100)}, "whole seconds"),
        ({"every": timedelta(seconds=1.5)}, "whole seconds"),
        ({"every": timedelta(days=10_000)}, "ten years"),
        ({"every": 60}, "a timedelta, not 60"),
        ({"every": timedelta(hours=1), "zone": "Europe/Berlin"}, "no time zone"),
        ({"cron": "0 3 * * *", "catch_up": "some"}, "catch_up is one of"),
        ({"cron": "0 3 * * *", "options": {"id": "x"}}, "ids of their own"),
        ({"cron": "0 3 * * *", "options": {"durability": "none"}}, "durable"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_declared(wrong, why):
    with pytest.raises(BadSchedule, match=why):
        holdfast.Schedule("s", report, "berlin", **wrong)


@pytest.mark.parametrize("name", ["", "x" * 401, 7, "two\nlines", "\ud800"])
def test_a_name_is_short_and_printable(name):
    with pytest.raises(BadSchedule, match="name"):
        holdfast.Schedule(name, report, "berlin", cron="0 3 * * *")


def test_arguments_and_options_are_checked_where_they_are_declared():
    with pytest.raises(BadArguments, match="city"):
        holdfast.Schedule("s", report, 3, cron="0 3 * * *")  # type: ignore[arg-type]
    with pytest.raises(BadArguments, match="missing"):
        holdfast.Schedule("s", report, cron="0 3 * * *")  # type: ignore[arg-type]
    with pytest.raises(BadArguments, match="no such run option"):
        holdfast.Schedule("s", report, "berlin", cron="0 3 * * *", options={"sesion": "x"})
    with pytest.raises(HoldfastError, match="not a workflow"):
        holdfast.Schedule("s", len, [], cron="0 3 * * *")


def test_cronsim_is_loaded_only_where_there_are_schedules():
    code = "import sys, holdfast.worker.process; print({'cronsim', 'zoneinfo'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True
    )
    assert done.stdout.strip() == "set()", done.stderr
