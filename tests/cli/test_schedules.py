"""`holdfast schedules`, with a user's module in the current directory."""

from __future__ import annotations

import json
import sqlite3

import pytest

MODULE = """
from datetime import timedelta
import holdfast
from agent import essay

schedules = [
    holdfast.Schedule("nightly", essay, "oaks", cron="0 3 * * *", zone="Europe/Berlin"),
    holdfast.Schedule("often", essay, "elms", every=timedelta(hours=6), catch_up="skip"),
]
app = holdfast.Holdfast("sqlite:///agent.db", workflows=[essay], schedules=schedules)
"""


@pytest.fixture
def scheduled(shell):
    (shell.folder / "scheduled.py").write_text(MODULE, "utf-8")
    shell("start", "scheduled:app", "essay", '"ash"', "--id", "e1")  # opens the app
    return shell


def listed(shell) -> dict[str, dict]:
    return {row["name"]: row for row in json.loads(shell("schedules", "--json"))}


def test_schedules_are_listed(scheduled):
    text = scheduled.process("schedules")
    assert "0 3 * * * Europe/Berlin" in text and "@every 21600s" in text and "latest" in text
    rows = listed(scheduled)
    assert [*rows] == ["nightly", "often"]
    assert rows["nightly"]["next_at"] and rows["nightly"]["input"] == {"topic": "oaks"}
    assert (rows["often"]["last_run"], rows["often"]["catch_up"]) == (None, "skip")


def test_a_schedule_is_paused_and_resumed(scheduled):
    assert "paused" in scheduled.process("schedules", "pause", "nightly")
    assert listed(scheduled)["nightly"]["paused"] and "paused" in scheduled("schedules")
    scheduled.process("schedules", "resume", "nightly")
    assert not listed(scheduled)["nightly"]["paused"]


def test_a_schedule_is_triggered_and_executed(scheduled):
    id = scheduled.process("schedules", "trigger", "nightly").strip()
    assert id.startswith("nightly@")
    scheduled.process("worker", "scheduled:app", "--until-idle")
    shown = json.loads(scheduled("show", id, "--json"))
    assert (shown["status"], shown["output"]) == ("completed", "an essay from notes on oaks")


def test_a_schedule_is_deleted(scheduled):
    scheduled.process("schedules", "delete", "nightly")
    assert [*listed(scheduled)] == ["often"]


def test_without_schedules_it_says_so(shell):
    shell("start", "agent:app", "essay", '"ash"')
    assert shell("schedules").startswith("no schedules")


@pytest.mark.parametrize("command", ["pause", "resume", "trigger", "delete"])
def test_an_unknown_schedule_is_named(scheduled, command):
    said = scheduled.refused("schedules", command, "weekly")
    assert "no schedule 'weekly'; known are: 'nightly', 'often'" in said


def test_a_misplaced_option_is_refused(scheduled):
    said = scheduled.refused("schedules", "--db", "other.db", "delete", "nightly", code=2)
    assert "options go behind `delete`" in said
    assert "nightly" in listed(scheduled)


def test_a_worker_that_leaves_when_idle_makes_the_ticks_it_finds(scheduled):
    """For those who start workers by their system's own cron."""
    db = sqlite3.connect(scheduled.db)
    db.execute("UPDATE schedules SET next_at = next_at - 86400000000 WHERE name = 'nightly'")
    db.commit()
    db.close()
    scheduled.process("worker", "scheduled:app", "--until-idle")
    runs = json.loads(scheduled("runs", "--json"))
    assert {row["status"] for row in runs} == {"completed"}
    assert [row["id"].partition("@")[0] for row in runs] == ["nightly", "e1"]
    assert listed(scheduled)["nightly"]["last_run"] == runs[0]["id"]
