"""`holdfast queues`, with a user's module in the current directory."""

from __future__ import annotations

import json

import pytest

MODULE = """
from datetime import timedelta
import holdfast
from agent import essay

narrow = holdfast.Queue(
    "narrow", concurrency=10, per_worker=2, rate=holdfast.Rate(100, per=timedelta(minutes=1))
)
app = holdfast.Holdfast("sqlite:///agent.db", workflows=[essay], queues=[narrow])
app = app.with_options(queue="narrow")
"""


@pytest.fixture
def queued(shell):
    (shell.folder / "queued.py").write_text(MODULE, "utf-8")
    shell("start", "queued:app", "essay", '"ash"', "--id", "e1")  # opens the app
    shell("start", "agent:app", "essay", '"elm"', "--id", "e2")
    return shell


def listed(shell) -> dict[str, dict]:
    return {row["name"]: row for row in json.loads(shell("queues", "--json"))}


def test_queues_are_listed_with_limits_and_how_busy_they_are(queued):
    text = queued.process("queues")
    assert "10 at once, 2 per worker, 100 in 60.0 s" in text and "a worker with room" in text
    rows = listed(queued)
    assert [*rows] == ["default", "narrow"]
    narrow = rows["narrow"]
    assert (narrow["concurrency"], narrow["per_worker"], narrow["paused"]) == (10, 2, False)
    assert narrow["rate"] == {"count": 100, "seconds": 60.0, "burst": 1}
    assert (narrow["running"], narrow["ready"]) == (0, 1) and narrow["oldest"]
    assert rows["default"]["rate"] is None


def test_a_queue_is_paused_and_resumed(queued):
    assert "paused" in queued.process("queues", "pause", "narrow")
    assert listed(queued)["narrow"]["paused"] and "paused" in queued("queues")
    queued.process("worker", "queued:app", "--until-idle")
    assert json.loads(queued("show", "e1", "--json"))["status"] == "pending"
    assert json.loads(queued("show", "e2", "--json"))["status"] == "completed"
    queued.process("queues", "resume", "narrow")
    queued.process("worker", "queued:app", "--until-idle")
    assert json.loads(queued("show", "e1", "--json"))["status"] == "completed"


def test_a_queue_that_is_not_there_is_refused_by_name(queued):
    assert "'nowhere'" in queued.refused("queues", "pause", "nowhere")
    assert "'nowhere'" in queued.refused("queues", "resume", "nowhere")
    assert "behind" in queued.refused("queues", "--json", "pause", "narrow", code=2)
