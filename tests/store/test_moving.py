"""A store is moved with everything in it; whatever dies, there is one master at most."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast import RunFilter, Status, StoreMoved, StoreUnavailable, store
from holdfast.store import copying
from holdfast.store.copying import Progress
from holdfast.testing.conformance.given import (
    NOW,
    append,
    start,
    started_and_claimed,
    step,
    worker,
)
from holdfast.testing.postgres import PostgresServer
from tests.store import moving_agent
from tests.store.moving import (
    KINDS,
    Urls,
    agent,
    dump,
    end,
    execute,
    fill,
    heard,
    new_urls,
    opened,
    state_of,
)

DIRECTIONS = list(itertools.product(KINDS, KINDS))


@pytest.fixture
def urls(tmp_path: Path, postgres: PostgresServer) -> Urls:
    return new_urls(tmp_path, postgres)


# What is moved


async def test_every_table_and_column_is_moved_or_left_out_on_purpose(urls: Urls) -> None:
    sqlite, postgres = urls("sqlite"), urls("postgres")
    for url in (sqlite, postgres):
        await store.upgrade(url)
    with sqlite3.connect(sqlite.removeprefix("sqlite:///")) as db:
        names = {
            row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
    db.close()
    moved = {table.name for table in copying.TABLES}
    assert names - moved == {"workers", "moves", "sqlite_sequence"}
    async with end(sqlite) as here, end(postgres) as there:
        for table in copying.TABLES:
            assert set(await here.columns(table)) ^ set(await there.columns(table)) == (
                copying.UNSHARED.get(table.name, set())
            )


@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_a_move_keeps_every_row_key_and_counter(urls: Urls, first: str, second: str) -> None:
    one, two, three = urls(first), urls(second), urls(first)
    await fill(one)
    async with opened(one) as source:
        await start(source, "deleted")
        await execute(one, "DELETE FROM runs WHERE id = 'deleted';")
    assert await store.move(one, two)
    before, after = await dump(one), await dump(two)
    assert after == before
    assert all(before.values()), "every table has rows"
    assert await store.move(two, three)
    assert await dump(three) == before
    async with opened(three) as target:
        new = await start(target, "new")
        assert new.key == max(row[1] for row in before["counters"] if row[0] == "runs") + 1


@pytest.mark.parametrize("kind", KINDS)
async def test_the_runs_of_a_dead_worker_arrive_claimable(urls: Urls, kind: str) -> None:
    source, target = urls(kind), urls("sqlite")
    async with opened(source) as made:
        await worker(made, "dead", lease_seconds=0)
        got_on = await started_and_claimed(made, "got on", by="dead")
        await made.commit([append(got_on, step(2))])
        await started_and_claimed(made, "stood still", by="dead")
    await execute(source, "UPDATE runs SET owner = 'nobody knows' WHERE id = 'got on';")
    await store.move(source, target)
    async with opened(target) as arrived:
        assert await arrived.workers() == []
        rows = {row.id: row for row in await arrived.find(RunFilter())}
        assert {row.status for row in rows.values()} == {Status.PENDING}
        assert (rows["got on"].strikes, rows["stood still"].strikes) == (0, 1)
        await worker(arrived, "alive")
        claimed = await arrived.claim("alive", ["research"], NOW * 2, 10)
        assert {c.row.id: (c.row.epoch, c.seq) for c in claimed} == {
            "got on": (2, 3),
            "stood still": (2, 2),
        }


async def test_a_dry_run_counts_and_changes_nothing(urls: Urls) -> None:
    source, target = urls("sqlite"), urls("postgres")
    await fill(source)
    plan = await store.planned_move(source, target)
    assert plan["runs"] == 10 and plan["journal"] == 32 and plan["schedules"] == 2
    assert await state_of(source) is None
    found = store._end(target)
    assert not await found.exists()
    await found.close()


# An agent goes on elsewhere


STATES = {
    "ended": Status.COMPLETED,
    "failed": Status.FAILED,
    "parked": Status.PARKED,
    "asks": Status.WAITING,
    "answered early": Status.PENDING,
    "paused": Status.PAUSED,
    "sleeps": Status.WAITING,
    "has a child": Status.WAITING,
    "has a child's child": Status.WAITING,
    "hears": Status.PENDING,
    "turn 1": Status.COMPLETED,
    "turn 2": Status.WAITING,
    "turn 3": Status.PENDING,
    "dies": Status.PENDING,
    "waits for a worker": Status.PENDING,
}
RESULTS = {
    "ended": "<ended 1><ended 2>",
    "parked": "<parked 1><fragile parked>",
    "asks": "<asks 1>1<asks 2>",
    "answered early": "<answered early 1>7<answered early 2>",
    "paused": "<paused 1>2<paused 2>",
    "sleeps": "<sleeps 1><sleeps 2>",
    "has a child": "<has a child 1><has a child's child 1>3<has a child's child 2><has a child 2>",
    "hears": "<hears 1>one three",
    "turn 1": [1, "<turn 1>"],
    "turn 2": [2, "<turn 1>", "<turn 2>"],
    "turn 3": [3, "<turn 1>", "<turn 2>", "<turn 3>"],
    "dies": "<dies 1><slow dies><dies 2>",
    "waits for a worker": "<waits for a worker 1><waits for a worker 2>",
}


@pytest.mark.parametrize(("kind", "other"), [("sqlite", "postgres"), ("postgres", "sqlite")])
async def test_runs_in_every_state_go_on_where_they_were(
    urls: Urls, kind: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = urls(kind), urls(other)
    await store.upgrade(source)
    (tmp_path / "broken").touch()
    monkeypatch.setenv(moving_agent.FOLDER, str(tmp_path))
    with agent("live", source, folder=tmp_path) as process:
        assert [await heard(process) for _ in range(3)] == [["RunFailed"], ["RunHalted"], ["slow"]]
        with pytest.raises(StoreUnavailable, match="in use by 1 worker"):
            await store.move(source, target)
    (tmp_path / "broken").unlink()
    client = moving_agent.app_of(source, worker=False)
    async with client:
        await client.with_options(id="waits for a worker").start(
            moving_agent.noted, "waits for a worker"
        )
        await client.resolve("answered early", "answer", 7)
        await client.send("hears", "three")
        assert await store.move(source, target)
        with pytest.raises(StoreMoved, match=re.escape(target.rpartition("@")[2])):
            await client.start(moving_agent.noted, "too late")
    before = effects(tmp_path)
    assert before["slow dies"] == 1
    async with opened(target) as arrived:
        assert {row.id: row.status for row in await arrived.find(RunFilter())} == STATES
    async with moving_agent.app_of(target) as app:
        for id, answer in (("asks", 1), ("paused", 2), ("has a child's child", 3), ("turn 2", 4)):
            await app.resolve(id, "answer", answer)
        await app.resume("paused")
        await app.resume("parked")
        found = {id: await app.result(id) for id in RESULTS}
        assert found == RESULTS
        assert (await app.row("failed")).status is Status.FAILED
        joined = app.with_options(id="joins", session="talk", on_busy="join")
        assert (await joined.start(moving_agent.noted, "two")).id == "hears", "it is remembered"
    done = effects(tmp_path)
    again = {line for line, count in done.items() if count > 1}
    assert again == {"slow dies", "fragile parked"}, "only what had not ended is done again"
    assert done["slow dies"] == 2 and done["fragile parked"] == 2


def effects(folder: Path) -> Counter[str]:
    return Counter((folder / "effects.txt").read_text("utf-8").splitlines())


# Interrupted


ALLOWED = {
    (None, None),
    ("leaving", None),
    ("leaving", "arriving"),
    ("left", "arriving"),
    ("left", None),
    ("returning", "arriving"),
    ("returning", None),
}


async def killed_at_every_place(what: str, source: str, target: str, folder: Path) -> Counter[Any]:
    """How often the stores were found in which states."""
    seen: Counter[Any] = Counter()
    with agent(what, source, target, folder=folder) as process:
        while (said := await heard(process)) == ["killed"]:
            seen[await state_of(source), await state_of(target)] += 1
            assert process.stdin is not None
            process.stdin.write("\n")
        assert said == ["ended", "0"]
    assert set(seen) <= ALLOWED
    return seen


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(*both, marks=[pytest.mark.full] if both[0] == both[1] else [])
        for both in DIRECTIONS
    ],
)
async def test_a_move_that_is_killed_anywhere_is_finished_by_repeating_it(
    urls: Urls, first: str, second: str, tmp_path: Path
) -> None:
    source, target = urls(first), urls(second)
    await fill(source)
    seen = await killed_at_every_place("move", source, target, tmp_path)
    assert seen["leaving", "arriving"] > 20
    assert seen["leaving", None] and seen["left", "arriving"], "also between the two ends"
    assert (await state_of(source), await state_of(target)) == ("left", None)
    assert await dump(source) == await dump(target)
    assert not await store.move(source, target), "it was done before"
    async with opened(target) as arrived:
        await start(arrived, "new")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize(("first", "second"), [("sqlite", "postgres"), ("postgres", "sqlite")])
async def test_a_move_that_is_killed_at_any_moment_is_finished_by_repeating_it(
    urls: Urls, first: str, second: str, tmp_path: Path
) -> None:
    source, target = urls(first), urls(second)
    await fill(source, runs=40)
    await killed_at_every_place("alarm", source, target, tmp_path)
    assert (await state_of(source), await state_of(target)) == ("left", None)
    assert await dump(source) == await dump(target)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize(("first", "second"), [("sqlite", "postgres"), ("postgres", "sqlite")])
async def test_a_move_is_taken_back_also_by_one_who_is_killed_on_the_way(
    urls: Urls, first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = urls(first), urls(second)
    await fill(source)
    before = await interrupted(source, target, monkeypatch)
    seen = await killed_at_every_place("undo", source, target, tmp_path)
    assert seen["returning", "arriving"] and seen["returning", None]
    assert (await state_of(source), await state_of(target)) == (None, None)
    assert await dump(source) == before
    rows = await dump(target)
    assert not any(rows[table.name] for table in copying.TABLES)
    async with opened(source) as returned:
        await start(returned, "new")
    assert await store.move(source, target), "and it can leave again"


class Interrupted(Exception):
    pass


async def interrupted(
    source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, list[Any]]:
    """A move that stops half way; returns what the source holds."""

    def report(progress: Progress) -> None:
        if progress.what == "journal" and progress.done > 5:
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(copying, "BATCH_ROWS", 3)
        with pytest.raises(Interrupted):
            await store.move(source, target, report)
    return await dump(source)


@pytest.mark.parametrize("kind", KINDS)
async def test_of_two_who_move_at_once_none_spoils_what_the_other_finished(
    urls: Urls, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = urls("sqlite"), urls(kind)
    await fill(source)
    monkeypatch.setattr(copying, "BATCH_ROWS", 3)
    reached, go_on = asyncio.Event(), asyncio.Event()
    real = copying.copy

    async def held(here: Any, there: Any, report: Any) -> None:
        monkeypatch.setattr(copying, "copy", real)
        reached.set()
        await go_on.wait()
        await real(here, there, report)

    monkeypatch.setattr(copying, "copy", held)
    late = asyncio.create_task(store.move(source, target))
    await reached.wait()
    assert await store.move(source, target)
    async with opened(target) as arrived:
        await execute(target, "DELETE FROM limits;")
        go_on.set()
        with pytest.raises(StoreMoved, match="somebody else"):
            await late
        await start(arrived, "new")
    assert (await dump(target))["limits"] == []
