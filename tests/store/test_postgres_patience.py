"""What administrators set or cancel, others' locks and large payloads stop nothing for good."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

pytest.register_assert_rewrite("holdfast.testing")

import holdfast  # noqa: E402
from holdfast.clock import Micros, SystemClock, to_micros  # noqa: E402
from holdfast.store import postgres, postgres_link  # noqa: E402
from holdfast.store.base import Append, Appended, End, Reservation, Start  # noqa: E402
from holdfast.store.postgres import PostgresStore  # noqa: E402
from holdfast.store.postgres_open import upgrade  # noqa: E402
from holdfast.testing.conformance.given import NOW, claim, new_run, start, worker  # noqa: E402
from holdfast.testing.postgres import PostgresServer  # noqa: E402
from holdfast.types import Entry, Kind, MailKind, Status  # noqa: E402
from holdfast.worker.worker import Worker  # noqa: E402
from tests.store.locks import Locks, locks, until  # noqa: E402

SECONDS_MAX = 60
_WAITING = """
SELECT pid FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND application_name = 'holdfast' AND query ~ $1
"""


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    await upgrade(postgres_url)
    made = PostgresStore(postgres_url)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def seen(postgres_url: str) -> AsyncIterator[Locks]:
    async with locks(postgres_url) as view:
        yield view


async def lock_run(seen: Locks, id: str) -> None:
    await seen.holder.execute(f'SELECT 1 FROM "{seen.schema}".runs WHERE id = $1 FOR UPDATE', id)


async def waiting(seen: Locks, function: str) -> int:
    """The session that waits for a lock in a call of one of our functions."""
    call = f"{seen.schema}.\\.{function}\\("

    async def look() -> list[int]:
        return [row["pid"] for row in await seen.server.fetch(_WAITING, call)]

    (pid,) = await until(look, f"{function} waits for a lock")
    return pid


async def test_a_commit_whose_statement_is_cancelled_is_sent_again(
    store: PostgresStore, seen: Locks
) -> None:
    await worker(store, "w")
    await start(store, "r")
    (claimed,) = await claim(store, "w")
    run = claimed.row
    end = [Entry(2, Kind.END, "", NOW)]
    async with seen.holder.transaction():
        await lock_run(seen, "r")
        append = Append(run.key, run.epoch, end, NOW, End(Status.COMPLETED, b"1"))
        committing = asyncio.create_task(store.commit([append]))
        pid = await waiting(seen, "append")
        sent = await _sent(seen, pid)
        # As statement_timeout does, which a pooler may set, or an administrator.
        assert await seen.server.fetchval("SELECT pg_cancel_backend($1)", pid)
        await until(lambda: _is_over(seen, pid, sent), "the statement is cancelled")
    async with asyncio.timeout(SECONDS_MAX):
        assert await committing == [Appended()]


async def _sent(seen: Locks, pid: int) -> datetime | None:
    """When a session was sent its last statement: each has a time of its own."""
    return await seen.server.fetchval(
        "SELECT query_start FROM pg_stat_activity WHERE pid = $1 AND state = 'active'", pid
    )


async def _is_over(seen: Locks, pid: int, sent: datetime | None) -> bool:
    """Whether that statement is over, though it may have been sent again by now."""
    return await _sent(seen, pid) != sent


FAREWELL = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0"


def read_farewell(connection: Any) -> None:
    """The server's last message has been read, and that the connection has ended has not."""
    connection._protocol.data_received(b"E" + struct.pack("!i", 4 + len(FAREWELL)) + FAREWELL)


async def test_a_statement_that_comes_upon_a_connection_as_it_ends_takes_another(
    store: PostgresStore,
) -> None:
    for id in ("r", "s"):
        (connection,) = store._link._idle
        read_farewell(connection)
        await start(store, id)
        (connection,) = store._link._idle
        read_farewell(connection)
        assert await store.get(id) is not None


async def test_a_session_that_is_asked_as_it_ends_is_opened_again(
    store: PostgresStore, seen: Locks
) -> None:
    await worker(store, "w")
    before = await seen.holders("w")
    side = store._side
    assert side is not None

    async def both_end() -> None:
        read_farewell(side.second._connection)
        assert side.first._connection is not None
        side.first._connection.terminate()  # whereupon the second is asked

    await side.acall(both_end(), SECONDS_MAX)
    await seen.held_by_others_than("w", *before)


async def test_time_outs_for_sessions_in_general_do_not_end_a_workers_signs_of_life(
    postgres: PostgresServer,
) -> None:
    url = postgres.create_database("impatient")
    await upgrade(url)
    stores = [PostgresStore(url), PostgresStore(url)]
    told: list[str] = []
    async with locks(url) as seen:
        settings = ["statement_timeout", "idle_session_timeout", "lock_timeout"]
        if int(postgres.sql("SHOW server_version_num")[0][0]) >= 170000:
            settings.append("transaction_timeout")  # which ends the session
        for setting in settings:
            postgres.sql(f"ALTER DATABASE impatient SET {setting} = '100ms'")
        for name, store in zip(("a", "b"), stores, strict=True):
            await store.open()
            await worker(store, name)
        before = [await seen.holders(name) for name in ("a", "b")]
        stores[0].watch((await stores[0].workers())[1], lambda: told.append("b"))
        watching = await until(lambda: seen.watchers("b"), "b is watched")
        await seen.server.execute("SELECT pg_sleep(1)")
        # By the same session: it was not ended meanwhile.
        assert await until(lambda: seen.watchers("b"), "b is still watched") == watching
        assert [await seen.holders(name) for name in ("a", "b")] == before
        assert told == []
        for store in stores:
            await store.close()


@holdfast.workflow
async def one() -> int:
    return 1


class JumpingClock(SystemClock):
    """The clock of a machine on which somebody sets the time."""

    offset = timedelta(0)

    def now(self) -> int:
        return super().now() + to_micros(self.offset)


async def look_in_vain(worker: Worker, times: int = 2) -> None:
    """It has looked for work so often, and has passed over what is due."""
    looks: asyncio.Queue[Micros | None] = asyncio.Queue()
    worker.on_looked = looks.put_nowait
    worker.wake()
    async with asyncio.timeout(SECONDS_MAX):
        while times:
            due = await looks.get()
            times -= due is not None and due <= worker.clock.now()
    worker.on_looked = None


@pytest.mark.parametrize("locked", ["session", "run"])
async def test_a_run_that_was_locked_when_it_fell_due_begins_soon_after(
    store: PostgresStore, seen: Locks, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    """Whoever had the lock need not ring: a start that is refused does not."""
    monkeypatch.setattr(PostgresStore, "poll_seconds", 10_000.0)
    clock = JumpingClock()
    async with holdfast.Holdfast(store.url, workflows=[one], clock=clock) as app:
        assert app.worker is not None
        app.worker._tenure.timekeeper.close()  # which would put it right again
        async with seen.holder.transaction():
            delayed = app.with_options(id="r", session="s", delay=timedelta(days=1))
            run = await delayed.start(one)
            if locked == "session":
                key = f"hashtextextended('{seen.schema}/session/s', 0)"
                await seen.holder.execute(f"SELECT pg_advisory_xact_lock({key})")
            else:
                await lock_run(seen, "r")
            clock.offset = timedelta(days=2)
            await look_in_vain(app.worker)
            assert (await run.status()) is Status.PENDING
        async with asyncio.timeout(SECONDS_MAX):
            assert await run.result() == 1


async def test_old_answers_are_deleted_however_many_there_are(
    store: PostgresStore, seen: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "FORGET_REQUESTS", 10)
    requests = f'"{seen.schema}".requests'
    for number, age in ((35, "1 hour"), (3, "1 minute")):
        await seen.server.execute(
            f"INSERT INTO {requests} (id, outcome, at) SELECT gen_random_uuid(), '{{1}}', "
            f"now() - interval '{age}' FROM generate_series(1, {number})"
        )
    assert await store.prune(NOW, 200) == 0
    assert await seen.server.fetchval(f"SELECT count(*) FROM {requests}") == 3


async def test_limiters_that_are_at_rest_are_forgotten_though_runs_are_kept(
    store: PostgresStore, seen: Locks
) -> None:
    day = 24 * 3_600_000_000
    for name, at in (("rested", NOW), ("busy", NOW + day)):
        await store.reserve([Reservation(name, 1_000_000)], at)
    await store.hold_off("held", NOW + 2 * day)
    await store.prune(0, 200, now=NOW + day)
    rows = await seen.server.fetch(f'SELECT name FROM "{seen.schema}".limits ORDER BY name')
    assert [row["name"] for row in rows] == ["busy", "held"]


async def test_starts_of_the_same_ids_in_another_order_do_not_deadlock(
    store: PostgresStore, seen: Locks
) -> None:
    accept = f"""INSERT INTO "{seen.schema}".runs
        (id, workflow, status, created_at, updated_at, incarnation, digest, input)
        VALUES ($1, 'w', 'pending', 1, 1, 'i', 'd', '')"""
    async with seen.holder.transaction():
        await seen.holder.execute("SET LOCAL deadlock_timeout = '10ms'")  # it would be the victim
        await seen.holder.execute(accept, "a")
        both = [Start(new_run("b")), Start(new_run("a"))]
        starting = asyncio.create_task(store.commit(both))
        await waiting(seen, "start")
        await seen.holder.execute(accept, "b")
    async with asyncio.timeout(SECONDS_MAX):
        outcomes = await starting
    assert [getattr(outcome, "created", None) for outcome in outcomes] == [False, False]


async def test_runs_of_a_batch_go_in_its_order_whatever_their_ids(store: PostgresStore) -> None:
    await worker(store, "w")
    await store.commit([Start(new_run(id)) for id in ("c", "a", "b")])
    claimed = await claim(store, "w")
    assert [one.row.id for one in claimed] == ["c", "a", "b"]


async def test_a_pause_that_is_taken_back_while_it_is_repeated_is_answered(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start(store, "run")
    first = await store.post("run", MailKind.PAUSE, "", None, NOW)
    read = store._link.read

    async def resumed_first(sql: str, *values: object, **options: Any) -> Any:
        if sql == store._sql["mail_by_id"]:
            await store.resume("run", NOW)
        return await read(sql, *values, **options)

    monkeypatch.setattr(store._link, "read", resumed_first)
    assert (await store.post("run", MailKind.PAUSE, "", None, NOW)).id == first.id
    found = await store.get("run")
    assert found is not None and found.status is Status.PENDING


async def test_a_large_payload_has_the_time_it_takes(
    store: PostgresStore, seen: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start(store, "r")
    monkeypatch.setattr(postgres_link, "STATEMENT_SECONDS", 0.1)
    monkeypatch.setattr(postgres_link, "BYTES_PER_SECOND_MIN", 100)
    async with seen.holder.transaction():
        await lock_run(seen, "r")
        payload = b"x" * 100 * SECONDS_MAX
        posting = asyncio.create_task(store.post("r", MailKind.MESSAGE, "", payload, NOW))
        pid = await waiting(seen, "post")
        await seen.server.execute("SELECT pg_sleep(1)")
        assert await waiting(seen, "post") == pid
    await posting
