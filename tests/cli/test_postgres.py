"""Every command on a PostgreSQL store, and the two that differ there."""

from __future__ import annotations

import json

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def shared(shell: Shell, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The user's module, with its app in PostgreSQL."""
    agent = shell.folder / "agent.py"
    agent.write_text(agent.read_text("utf-8").replace("sqlite:///agent.db", postgres_url), "utf-8")
    monkeypatch.setenv("HOLDFAST_DB", postgres_url)
    shell.url = postgres_url
    return shell


def status(shell: Shell, run: str) -> str:
    return str(json.loads(shell("show", run, "--json"))["status"])


def test_a_store_that_was_not_made_is_refused_and_made(shared: Shell) -> None:
    refused = shared.refused("runs")
    assert "holdfast db upgrade" in refused
    assert "CREATE TABLE runs" in shared("db", "upgrade", "--sql")
    assert "holdfast db upgrade" in shared.refused("runs")
    assert "was upgraded" in shared.process("db", "upgrade", HOLDFAST_DB=shared.url)
    assert "is up to date" in shared("db", "upgrade")
    assert "is sound" in shared("db", "check")


def test_runs_live_by_the_same_commands_as_on_sqlite(shared: Shell) -> None:
    shared("db", "upgrade")
    assert shared("start", "agent:app", "essay", '"oaks"', "--id", "e1") == "e1\n"
    shared("start", "agent:app", "release", '"v1"', "--id", "r1")
    shared("start", "agent:app", "listen", '"news"', "--id", "l1")
    shared("start", "agent:app", "ask", '"age"', "--id", "a1")
    (shared.folder / "broken").touch()
    shared("start", "agent:app", "breaks", "--id", "b1")
    shared.work()
    assert "notes on oaks" in shared("show", "e1")
    found = json.loads(shared("runs", "--json"))
    assert {row["id"]: row["status"] for row in found} == {
        "e1": "completed",
        "r1": "waiting",
        "l1": "waiting",
        "a1": "waiting",
        "b1": "failed",
    }
    assert "holdfast resolve r1 release" in shared("why", "r1")
    shared("resolve", "r1", "release", "--approve", "--by", "ada")
    shared("resolve", "a1", "age", "21")
    shared("send", "l1", '"one"', "--channel", "news")
    shared("send", "l1", '"two"', "--channel", "news")
    (shared.folder / "broken").unlink()
    shared("rerun", "b1")
    shared("fork", "e1", "--before", "/write#0", "--id", "e2")
    shared("start", "agent:app", "naps", "1000000", "--id", "n1")
    shared("pause", "n1")
    assert status(shared, "n1") == "paused"
    shared("resume", "n1")
    shared("cancel", "n1")
    shared.work()
    ended = {row["id"]: row["status"] for row in json.loads(shared("runs", "--json"))}
    assert ended.pop("n1") == "cancelled"
    assert set(ended.values()) == {"completed"} and len(ended) == 6
    assert shared("workers") == "no workers; start one: holdfast worker MODULE:APP\n"


def test_a_backup_is_a_file_and_is_restored(shared: Shell) -> None:
    shared("db", "upgrade")
    shared("start", "agent:app", "essay", '"oaks"', "--id", "e1")
    shared.work()
    shared("backup", "copy.db")
    shared("start", "agent:app", "essay", '"elms"', "--id", "e2")
    assert "--force" in shared.refused("restore", "copy.db")
    shared("restore", "copy.db", "--force")
    assert [row["id"] for row in json.loads(shared("runs", "--json"))] == ["e1"]
