"""What `holdfast.testing` promises, and that it does complain."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Status
from holdfast.engine.journal import Journal
from holdfast.store import sqlite_lanes
from holdfast.testing import (
    CrashReport,
    Environment,
    NotDurable,
    NotSettled,
    crash_everywhere,
    crashes,
)
from holdfast.types import Entry, Kind

DAY = timedelta(days=1)


@holdfast.step
async def ask(question: str) -> str:
    return question.upper()


@holdfast.workflow
async def asks_twice() -> str:
    first = await ask("one")
    await holdfast.sleep(DAY)
    return first + await ask("two")


async def test_the_fixture_makes_environments(durable: Callable[..., Environment]) -> None:
    async with durable([asks_twice]) as env:
        assert await env.result(await env.start(asks_twice)) == "ONETWO"


async def test_time_moves_only_when_told_to() -> None:
    async with Environment([asks_twice]) as env:
        run = await env.start(asks_twice)
        await env.settle()
        assert env.started == ["/ask#0"]
        await env.advance(DAY - timedelta(microseconds=1))
        assert await run.status() is not Status.COMPLETED
        await env.advance(timedelta(microseconds=1))
        assert await run.status() is Status.COMPLETED


async def test_what_falls_due_on_the_way_happens_at_its_own_time() -> None:
    @holdfast.workflow
    async def ticks() -> list[float]:
        begin, seen = holdfast.now(), []
        for _ in range(3):
            await holdfast.sleep(DAY)
            seen.append((holdfast.now() - begin) / DAY)
        return seen

    async with Environment([ticks]) as env:
        run = await env.start(ticks)
        await env.advance(10 * DAY)
        assert await run.result() == [1, 2, 3]


async def test_waiting_for_what_never_comes_is_an_error_that_says_for_what() -> None:
    @holdfast.workflow
    async def hopes() -> None:
        await holdfast.promise("nobody gives")

    async with Environment([hopes]) as env:
        run = await env.start(hopes)
        with pytest.raises(NotSettled, match="does not come"):
            await env.result(run)


async def test_a_step_that_never_ends_is_an_error_that_says_so() -> None:
    begun = asyncio.Event()

    @holdfast.step
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    @holdfast.workflow
    async def hangs() -> None:
        await endless()

    async with Environment([hangs], patience=timedelta(seconds=1)) as env:
        run = await env.start(hangs)
        await begun.wait()
        with pytest.raises(NotSettled, match="executes 1 step"):
            await env.result(run)


async def test_crash_everywhere_reports_what_it_did() -> None:
    report = await crash_everywhere(asks_twice)
    assert isinstance(report, CrashReport)
    assert (report.result, report.entries) == ("ONETWO", 5)  # claim, step, timer, step, end
    assert report.crashes == 2 * report.entries  # before and after each
    assert dict(report.steps) == {"/ask#0": 1, "/ask#1": 1}
    assert dict(report.repeated) == {"/ask#0": 1, "/ask#1": 1}
    assert "10 crashes at 5 journal entries, all recovered" in repr(report)


async def test_what_is_sent_while_the_run_crashes_is_sent_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sqlite_lanes, "INLINE_SECONDS_MAX", 0.0)  # on a thread, beside the run

    @holdfast.workflow
    async def listens() -> list[str]:
        return [await holdfast.receive(str) for _ in range(3)]

    report = await crash_everywhere(listens, messages=["a", "b", "c"])
    assert report.result == ["a", "b", "c"]


async def test_a_result_that_depends_on_something_unjournaled_is_found() -> None:
    luck = itertools.count()

    @holdfast.workflow
    async def lucky() -> str:
        return f"{await ask('one')} {next(luck)}"

    with pytest.raises(NotDurable, match="and its replay with"):
        await crash_everywhere(lucky)


async def test_a_path_that_depends_on_something_unjournaled_is_found() -> None:
    luck = itertools.count()

    @holdfast.workflow
    async def wanders() -> str:
        return await ask(f"question {next(luck)}")

    with pytest.raises(NotDurable, match="diverged"):
        await crash_everywhere(wanders)


async def test_a_nested_step_with_arguments_of_its_own_each_time_is_another_call() -> None:
    luck = itertools.count()

    @holdfast.step
    async def tool() -> str:
        return await ask(f"question {next(luck)}") + await ask("again")

    @holdfast.workflow
    async def uses_it() -> str:
        return await tool()

    assert (await crash_everywhere(uses_it)).result.endswith("AGAIN")


async def test_a_run_that_parks_is_found() -> None:
    @holdfast.step(retry=holdfast.Retry(attempts=1, exhausted="park"))
    async def fails() -> None:
        raise ConnectionError("down")

    @holdfast.workflow
    async def parks() -> None:
        await ask("one")
        await fails()

    with pytest.raises(NotDurable, match="parked"):
        await crash_everywhere(parks)


async def test_a_failing_run_is_reported_with_its_error() -> None:
    @holdfast.workflow
    async def fails() -> None:
        await ask("one")
        raise ValueError("no good")

    report = await crash_everywhere(fails)
    assert isinstance(report.result, ValueError) and str(report.result) == "no good"


# Runs that the run starts and does not wait for


@holdfast.workflow
async def asks() -> str:
    return await ask("one") + await ask("two")


@holdfast.workflow
async def outruns_its_child() -> str:
    name, _ = await holdfast.race(child=holdfast.child(asks), own=ask("three"))
    return name + await ask("four")


@holdfast.workflow
async def leaves_a_run_behind() -> str:
    await holdfast.start(asks)
    return await ask("three")


@pytest.fixture
def all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who are left behind get as far as they can, however slow this machine is."""
    monkeypatch.setattr(crashes, "OTHERS_SECONDS", 120.0)


@pytest.mark.parametrize("workflow", [outruns_its_child, leaves_a_run_behind])
async def test_a_run_left_behind_may_go_on_while_the_other_is_replayed(
    workflow: holdfast.Workflow[[], str],
) -> None:
    report = await crash_everywhere(workflow, workflows=[asks])
    assert report.result.endswith(("FOUR", "THREE"))


async def test_steps_are_counted_per_run(all_the_time: None) -> None:
    report = await crash_everywhere(outruns_its_child, workflows=[asks])
    assert {"/ask#0", "/ask#1", "/child:asks#0/ask#0"} <= set(report.steps)
    assert set(report.steps.values()) == {1}
    report = await crash_everywhere(leaves_a_run_behind, workflows=[asks])
    assert set(report.steps) == {"/start#0", "/ask#0", "asks/ask#0", "asks/ask#1"}


async def test_a_run_left_behind_need_not_end() -> None:
    @holdfast.step
    async def endless() -> None:
        await asyncio.Event().wait()

    @holdfast.workflow
    async def hangs() -> None:
        await endless()

    @holdfast.workflow
    async def hopes() -> None:
        await holdfast.promise("nobody gives")

    @holdfast.workflow
    async def does_not_wait() -> str:
        await holdfast.race(a=holdfast.child(hangs), b=holdfast.child(hopes), own=ask("one"))
        return await ask("two")

    assert (await crash_everywhere(does_not_wait, workflows=[hangs, hopes])).result == "TWO"


@pytest.mark.parametrize(
    "forgets, found",
    [
        ("itself", "the replay executed: .*/ask#0"),
        ("the other", "executed again although recorded"),
    ],
)
@pytest.mark.parametrize("workflow", [outruns_its_child, leaves_a_run_behind])
async def test_a_recorded_step_that_is_executed_again_is_found_in_every_run(
    workflow: holdfast.Workflow[[], str],
    forgets: str,
    found: str,
    all_the_time: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load: Any = Journal._load

    def forget(journal: Journal, entry: Entry) -> None:
        whose = "itself" if journal.run_id == "crash-everywhere" else "the other"
        if entry.kind is Kind.STEP and whose == forgets:
            entry = dataclasses.replace(entry, kind=Kind.ABANDONED)
        load(journal, entry)

    monkeypatch.setattr(Journal, "_load", forget)
    with pytest.raises(NotDurable, match=found):
        await crash_everywhere(workflow, workflows=[asks])


async def test_a_run_left_behind_that_does_not_follow_its_journal_is_found(
    all_the_time: None,
) -> None:
    luck = itertools.count()

    @holdfast.workflow
    async def wanders() -> str:
        return await ask(f"question {next(luck)}") + await ask("two")

    @holdfast.workflow
    async def starts_it() -> str:
        await holdfast.start(wanders)
        return await ask("three") + await ask("four")

    with pytest.raises(NotDurable, match="diverged"):
        await crash_everywhere(starts_it, workflows=[wanders])
