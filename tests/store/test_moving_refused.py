"""Who is refused because of a move, and which moves are refused: by name, and nothing changes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Holdfast,
    RunFilter,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreMoved,
    StoreUnavailable,
    store,
)
from holdfast.errors import LeaseLost, Unsupported
from holdfast.store import copying, moving
from holdfast.store.base import Start, Store
from holdfast.store.copying import Progress
from holdfast.testing.conformance.given import NOW, new_run, start, worker
from holdfast.testing.conformance.schedules import schedule
from holdfast.testing.postgres import PostgresServer
from holdfast.types import MailKind
from tests.store.moving import (
    KINDS,
    Urls,
    agent,
    dump,
    execute,
    fill,
    heard,
    new_urls,
    opened,
    state_of,
)

Write = Callable[[Store], Coroutine[Any, Any, Any]]

WRITES: dict[str, Write] = {
    "start": lambda s: s.commit([Start(new_run("new"))]),
    "start in a session": lambda s: s.commit([Start(new_run("new", session="s"))]),
    "several starts": lambda s: s.commit([Start(new_run(f"new {n}")) for n in range(5)]),
    "post": lambda s: s.post("pending", MailKind.MESSAGE, "", b"x", NOW),
    "cancel": lambda s: s.post("pending", MailKind.CANCEL, "", None, NOW),
    "resume": lambda s: s.resume("paused", NOW),
    "rerun": lambda s: s.rerun("failed", 1, NOW, []),
    "fork": lambda s: s.fork("run 1", 2, new_run("forked")),
    "register": lambda s: worker(s, "new"),
    "add a schedule": lambda s: s.put_schedule(schedule("new"), seen=None),
    "delete a schedule": lambda s: s.delete_schedule("nightly"),
    "prune": lambda s: s.prune(NOW * 2, 10),
    "delete a session": lambda s: s.delete_session("b"),
    "prune sessions": lambda s: s.prune_sessions(NOW, 10),
}


@pytest.fixture
def urls(tmp_path: Path, postgres: PostgresServer) -> Urls:
    return new_urls(tmp_path, postgres)


async def filled(url: str) -> None:
    await fill(url)
    await execute(
        url,
        "UPDATE runs SET status = 'paused', owner = NULL WHERE id = 'run 2';"
        "UPDATE runs SET id = 'paused' WHERE id = 'run 2';"
        "UPDATE runs SET status = 'failed', ended_at = 1, owner = NULL WHERE id = 'run 3';"
        "UPDATE runs SET id = 'failed' WHERE id = 'run 3';",
    )


async def refused(used: Store, names: str) -> None:
    """All writes are refused, and the error names the other store."""
    for name, write in WRITES.items():
        with pytest.raises(StoreMoved, match=re.escape(names)):
            outcome = await write(used)
            pytest.fail(f"{name}: {outcome}")


async def rows(url: str) -> dict[str, list[Any]]:
    """Without the counters: numbers that were drawn in vain are not given back."""
    return {name: found for name, found in (await dump(url)).items() if name != "counters"}


class Stopped(Exception):
    pass


def stop_at(what: str) -> copying.Report:
    def report(progress: Progress) -> None:
        if progress.what == what:
            raise Stopped

    return report


def without_password(url: str) -> str:
    return url.rpartition("@")[2]


# Who has a store open


@pytest.mark.parametrize("kind", KINDS)
async def test_who_had_the_source_open_is_refused_from_the_mark_on(urls: Urls, kind: str) -> None:
    source, target = urls(kind), urls("sqlite")
    await filled(source)
    async with opened(source) as used:
        with pytest.raises(Stopped):
            await store.move(source, target, stop_at("marking the target"))
        before = await rows(source)
        await refused(used, target)
        await worker_is_unknown(used)
        assert await rows(source) == before
        assert await store.move(source, target)
        await refused(used, f"has moved to {target}")
        assert await rows(source) == await rows(target) == before
    async with opened(source) as again:
        await refused(again, f"has moved to {target}")
        assert (await again.get("pending")) is not None, "what it held can be read"


async def worker_is_unknown(used: Store) -> None:
    with pytest.raises(LeaseLost):
        await used.claim("w1", ["research"], NOW * 2, 10)
    await used.deregister("w1")


@pytest.mark.parametrize("kind", KINDS)
async def test_nobody_uses_the_target_before_the_move_is_done(urls: Urls, kind: str) -> None:
    source, target = urls("sqlite"), urls(kind)
    await filled(source)
    async with opened(target) as used:
        with pytest.raises(Stopped):
            await store.move(source, target, stop_at("closing the source"))
        await refused(used, source)
        assert await store.move(source, target)
        await start(used, "new")


@pytest.mark.parametrize("kind", KINDS)
async def test_another_process_is_refused_too_and_goes_on_when_the_move_is_taken_back(
    urls: Urls, kind: str, tmp_path: Path
) -> None:
    source, target = urls(kind), urls("postgres")
    await fill(source)
    with agent("use", source, folder=tmp_path) as process:
        assert process.stdin is not None
        assert await heard(process) == ["open"]
        with pytest.raises(Stopped):
            await store.move(source, target, stop_at("inbox"))
        process.stdin.write("\n")
        for _ in range(3):
            said = " ".join(await heard(process))
            assert said.startswith("StoreMoved") and without_password(target) in said, said
        await store.undo_move(source, target)
        process.stdin.write("\n")
        assert [await heard(process) for _ in range(3)] == [["done"]] * 3


@pytest.mark.parametrize("kind", KINDS)
async def test_no_run_that_was_accepted_while_the_move_began_is_left_behind(
    urls: Urls, kind: str
) -> None:
    source, target = urls(kind), urls("sqlite")
    await fill(source)
    accepted: list[str] = []
    busy = asyncio.Event()

    async def go_on(name: str) -> None:
        async with opened(source) as used:
            for n in range(100_000):
                await start(used, f"{name} {n}", session=f"s{n % 5}" if n % 2 else None)
                accepted.append(f"{name} {n}")
                await used.post(f"{name} {n}", MailKind.MESSAGE, "", b"x", NOW)
                if n == 20:
                    busy.set()
                await asyncio.sleep(0)  # a quick commit never waits: others get a turn here

    clients = [asyncio.create_task(go_on(name)) for name in ("ann", "bob")]
    await busy.wait()
    assert await store.move(source, target)
    for client in clients:
        with pytest.raises(StoreMoved):
            await client
    async with opened(target) as arrived:
        found = {row.id for row in await arrived.find(RunFilter(limit=1_000_000))}
    before = {*(f"run {n}" for n in range(8)), "pending", "also pending"}
    assert found == {*accepted, *before}


@pytest.mark.parametrize("kind", KINDS)
async def test_who_waits_for_a_result_is_told_where_the_run_is(urls: Urls, kind: str) -> None:
    source, target = urls(kind), urls("sqlite")
    await fill(source)
    async with Holdfast(source, worker=False) as app:
        waiting = [asyncio.create_task(app.result(id)) for id in ("pending", "also pending")]
        await app.row("pending")
        assert await store.move(source, target)
        for task in waiting:
            with pytest.raises(StoreMoved, match=re.escape(target)):
                await task
        with pytest.raises(StoreMoved, match=re.escape(target)):
            await app.result("run 1")


# Which moves are refused


@pytest.mark.parametrize("kind", KINDS)
async def test_a_living_worker_is_named_and_the_source_stays_in_use(urls: Urls, kind: str) -> None:
    source, target = urls(kind), urls("sqlite")
    async with opened(source) as used:
        await worker(used, "busy")
        for attempt in (store.move, store.planned_move):
            with pytest.raises(StoreUnavailable, match=r"busy \(pid \d+ on .*SIGTERM"):
                await attempt(source, target)
        await start(used, "new")
        await used.deregister("busy")
        assert await store.move(source, target)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_target_that_holds_data_is_refused_and_unchanged(urls: Urls, kind: str) -> None:
    source, target = urls("sqlite"), urls(kind)
    await fill(source)
    async with opened(target) as used:
        await start(used, "mine")
        before = await dump(target)
        for attempt in (store.move, store.planned_move):
            with pytest.raises(StoreUnavailable, match="holds data"):
                await attempt(source, target)
        assert await dump(target) == before
        await start(used, "mine, too")
    assert (await state_of(source), await state_of(target)) == (None, None)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_target_with_a_living_worker_is_refused(urls: Urls, kind: str) -> None:
    source, target = urls("sqlite"), urls(kind)
    await fill(source)
    async with opened(target) as used:
        await worker(used, "early")
        with pytest.raises(StoreUnavailable, match="early"):
            await store.move(source, target)
    assert (await state_of(source), await state_of(target)) == (None, None)


@pytest.mark.parametrize("kind", KINDS)
async def test_who_fills_the_target_at_the_last_moment_loses_nothing(urls: Urls, kind: str) -> None:
    source, target = urls("sqlite"), urls(kind)
    await fill(source)
    async with opened(target) as used, opened(source) as still_used:

        async def leave(self: Any, *args: Any) -> None:
            await type(self).leave(self, *args)
            await start(used, "just now")

        here, there = store._end(source), store._end(target)
        here.leave = leave.__get__(here)  # type: ignore[method-assign]
        try:
            with pytest.raises(StoreUnavailable, match="holds data"):
                await moving.move(here, there, NOW, lambda _: None)
        finally:
            await here.close()
            await there.close()
        await start(still_used, "new")
        assert await used.get("just now") is not None


async def test_a_target_that_the_user_does_not_own_leaves_the_source_in_use(
    urls: Urls, postgres: PostgresServer
) -> None:
    source, target = urls("sqlite"), urls("postgres")
    await fill(source)
    await store.upgrade(target)
    dsn, _, schema = target.partition("?schema=")
    for grant in (
        "CREATE ROLE {0} LOGIN PASSWORD 'x'",
        "GRANT USAGE ON SCHEMA {0} TO {0}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {0} TO {0}",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA {0} TO {0}",
    ):
        await asyncio.to_thread(postgres.sql, grant.format(schema))
    mine = f"postgresql://{schema}:x@{dsn.rpartition('@')[2]}?schema={schema}"
    with pytest.raises(StoreUnavailable, match="own the schema"):
        await store.move(source, mine)
    assert (await state_of(source), await state_of(target)) == (None, None)
    assert await store.move(source, target)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_second_target_is_refused(urls: Urls, kind: str) -> None:
    source, target, second = urls(kind), urls("sqlite"), urls("postgres")
    await fill(source)
    with pytest.raises(Stopped):
        await store.move(source, target, stop_at("inbox"))
    for attempt in (store.move, store.planned_move, store.undo_move):
        with pytest.raises(StoreMoved, match=re.escape(target)):
            await attempt(source, second)
    with pytest.raises(StoreMoved, match="not done"):
        await store.move(target, second)
    other = urls("sqlite")
    await fill(other)
    with pytest.raises(StoreMoved, match="not done"):
        await store.move(other, target)
    assert await state_of(other) is None
    assert await store.move(source, target)
    with pytest.raises(StoreMoved, match=f"has moved to {re.escape(target)}"):
        await store.move(source, second)
    assert await state_of(second) is None


async def test_a_store_does_not_move_to_itself_by_whatever_name(urls: Urls) -> None:
    for kind in KINDS:
        source = urls(kind)
        await fill(source)
        with pytest.raises(StoreUnavailable, match="itself"):
            await store.move(source, source)
    empty = urls("postgres")
    await store.upgrade(empty)
    with pytest.raises(StoreUnavailable):
        await store.move(empty, empty.replace("127.0.0.1", "localhost"))
    assert await state_of(empty) is None


async def test_what_is_no_store_is_not_moved(urls: Urls, tmp_path: Path) -> None:
    source = urls("sqlite")
    wrong: list[tuple[str, str, type[StoreError], str]] = [
        (urls("sqlite"), source, StoreUnavailable, "no store"),
        (urls("postgres"), source, StoreUnavailable, "no store"),
        ("sqlite://:memory:", source, Unsupported, "only a file"),
        (source, "sqlite://:memory:", Unsupported, "only a file"),
        (source, "mysql://x/y", StoreError, "no known kind"),
        (source, "postgresql://u@127.0.0.1:1/y", StoreUnavailable, "cannot be reached"),
        (source, f"sqlite:///{tmp_path}/no/such/x.db", StoreUnavailable, "does not exist"),
    ]
    for here, there, error, said in wrong:
        if here == source:
            await store.upgrade(source)
        with pytest.raises(error, match=said):
            await store.move(here, there)
        assert await state_of(source) is None


async def test_a_move_that_is_not_under_way_or_is_done_is_not_taken_back(urls: Urls) -> None:
    source, target = urls("sqlite"), urls("postgres")
    await fill(source)
    with pytest.raises(StoreUnavailable, match="nothing to undo"):
        await store.undo_move(source, target)
    assert await store.move(source, target)
    before = await dump(target)
    with pytest.raises(StoreMoved, match="cannot be taken back"):
        await store.undo_move(source, target)
    assert await dump(target) == before


async def test_an_older_schema_is_not_moved_into(urls: Urls) -> None:
    source, target = urls("sqlite"), urls("postgres")
    await fill(source)
    await store.upgrade(target)
    await execute(target, "ALTER TABLE queues DROP COLUMN rate_count;")
    with pytest.raises(SchemaMismatch, match="rate_count"):
        await store.move(source, target)
    await store.undo_move(source, target)
    assert await state_of(source) is None


@pytest.mark.parametrize("kind", KINDS)
async def test_a_copy_that_differs_is_found_and_the_target_stays_closed(
    urls: Urls, kind: str
) -> None:
    source, target = urls("sqlite"), urls(kind)
    await fill(source)
    with pytest.raises(Stopped):
        await store.move(source, target, stop_at("comparing runs"))
    change = "UPDATE moves SET state = '{}';"
    await execute(
        target,
        change.format("copying")
        + "UPDATE journal SET output = {bytes} WHERE run = 1 AND seq = 3;"
        + change.format("arriving"),
    )
    with pytest.raises(StoreCorrupt, match="journal"):
        await store.move(source, target)
    assert (await state_of(source), await state_of(target)) == ("leaving", "arriving")
    await store.undo_move(source, target)
    assert await store.move(source, target)
