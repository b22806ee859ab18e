"""Agents of Pydantic AI, killed after each of their commits."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.testing.model_server import Asked, Reply
from tests.adapters import people
from tests.adapters.harness import Zygote, check_every_kill

SCRIPT = [
    Reply(tool_calls=[("search", {"q": "one"})]),
    Reply(tool_calls=[("search", {"q": "two"}), ("search", {"q": "three"})]),
    Reply(text="All is well.\nReally.", chunk=4),
]
PIECES = ["All ", "is w", "ell.", "\nRea", "lly."]
ANSWERS = {
    "delete:call_0_0": {"approved": True, "by": "ada"},
    "delete:call_0_1": {"approved": False, "comment": "not this one"},
    "ask_elsewhere:call_0_2": "42",
}
CAREFUL = [
    Reply(
        tool_calls=[
            ("delete", {"path": "a"}),
            ("delete", {"path": "b"}),
            ("ask_elsewhere", {"q": "c"}),
            ("search", {"q": "d"}),
        ]
    ),
    Reply(text="Done."),
]


def led(asked: Asked) -> Reply:
    """The boss delegates twice; its helper searches."""
    if "lead" in asked.prompt:
        left, right = (Reply(tool_calls=[("delegate", {"task": at})]) for at in ("left", "right"))
        return [left, right, Reply(text="Led.")][asked.turn]
    search = Reply(tool_calls=[("search", {"q": asked.prompt})])
    return [search, Reply(text=f"{asked.prompt} is done.")][asked.turn]


CASES = "pydantic_ai_cases"


@pytest.fixture(params=[3, pytest.param(1, marks=pytest.mark.full)], ids=["few", "all"])
def every(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


def test_an_agent_goes_on_where_it_was_killed(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "started", SCRIPT, every=every)
    assert outcome["result"] == "All is well.\nReally."
    calls = [key.rpartition("/")[2] for key in outcome["keys"] if "researcher.search" in key]
    assert sorted(call for call in calls if call != "note#0") == [
        "researcher.search:call_0_0#0",
        "researcher.search:call_1_0#0",
        "researcher.search:call_1_1#0",
    ]


def test_a_streaming_agent_goes_on_where_it_was_killed(zygote: Zygote, every: int) -> None:
    assert check_every_kill(zygote, "streamed", SCRIPT, every=every)["result"] == PIECES


def test_events_are_replayed_as_they_came(zygote: Zygote, every: int) -> None:
    *seen, output = check_every_kill(zygote, "events", SCRIPT, every=every)["result"]
    assert output == "".join(PIECES)
    assert seen.count("part_delta") == len(PIECES) - 1
    assert seen.count("function_tool_result") == 3


def test_deferred_calls_wait_for_their_answers(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "approved", CAREFUL, every=every, answers=ANSWERS)
    assert outcome["result"] == "Done."


def test_people_see_what_an_agent_asks(zygote: Zygote) -> None:
    asked: people.Answers = {
        "delete:call_0_0": (
            ANSWERS["delete:call_0_0"],
            '{"tool":"delete","arguments":{"path":"a"}}',
        ),
        "ask_elsewhere:call_0_2": ("42", '{"tool":"ask_elsewhere","arguments":{"q":"c"}}'),
        "delete:call_0_1": (
            ANSWERS["delete:call_0_1"],
            '{"tool":"delete","arguments":{"path":"b"}}',
        ),
    }
    assert people.check(zygote, "approved", CAREFUL, asked) == "Done."


def test_people_see_what_an_agent_as_a_tool_asks(zygote: Zygote) -> None:
    script: dict[str, Any] = {
        "lead": [Reply(tool_calls=[("delegate", {"task": "small"})]), "Led."],
        "small": [Reply(tool_calls=[("delete", {"path": "a"})]), "Helped."],
    }
    asked: people.Answers = {
        "delete:call_0_0": (
            {"approved": True},
            '{"tool":"delete","arguments":{"path":"a"}}',
        )
    }
    assert people.check(zygote, "delegated_to_careful", script, asked) == "Led."


def test_agents_as_tools_nest_and_their_usage_is_restored(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "delegated", led, every=every)
    assert outcome["result"] == ["Led.", 7, 4]
    nested = [key for key in outcome["keys"] if "/boss.delegate:call_1_0#0/" in key]
    assert sum("helper.model#" in key.rpartition("/")[2] for key in nested) == 2


def test_what_tools_change_in_deps_is_restored(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "remembered", SCRIPT, every=every)
    assert outcome["result"] == ["one", "three", "two"]


def test_a_graph_goes_on_at_its_node_and_in_it_at_the_call(zygote: Zygote, every: int) -> None:
    def parts(asked: Asked) -> Reply:
        search = Reply(tool_calls=[("search", {"q": asked.prompt})])
        return [search, Reply(text=f"{asked.prompt} is done.")][asked.turn]

    outcome = check_every_kill(zygote, "graph", parts, every=every)
    assert outcome["result"] == ["parts", *(f"part {n} is done." for n in (1, 2, 3))]
