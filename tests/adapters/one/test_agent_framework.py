"""Agents of the Microsoft Agent Framework, killed after each of their commits."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.testing.model_server import Reply
from tests.adapters import people
from tests.adapters.harness import World, Zygote, check_every_kill

CASES = "agent_framework_cases"
SCRIPT = [
    Reply(tool_calls=[("search", {"q": "one"})]),
    Reply(tool_calls=[("search", {"q": "two"}), ("search", {"q": "three"})]),
    Reply(text="All is well.\nReally.", chunk=4),
]
PIECES = ["All ", "is w", "ell.", "\nRea", "lly."]
CAREFUL = [
    Reply(tool_calls=[("search", {"q": "first"})]),
    Reply(
        tool_calls=[("delete", {"path": "a"}), ("delete", {"path": "b"}), ("search", {"q": "c"})]
    ),
    Reply(text="Done."),
    Reply(text="Nothing more."),
]
ANSWERS = {
    "delete:call_1_0": {"approved": True, "by": "ada"},
    "delete:call_1_1": {"approved": False, "comment": "not this one"},
}

EVERY = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.full)])
WIRES = pytest.mark.parametrize(
    "wire", ["", pytest.param("_by_responses", marks=pytest.mark.full)], ids=["chat", "responses"]
)


@EVERY
@WIRES
def test_an_agent_goes_on_where_it_was_killed(zygote: Zygote, wire: str, every: int) -> None:
    outcome = check_every_kill(zygote, f"started{wire}", SCRIPT, every=every)
    assert outcome["result"] == "All is well.\nReally."
    calls = [key.rpartition("/")[2] for key in outcome["keys"] if ".search:" in key]
    assert sorted({call for call in calls if call != "note#0"}) == [
        "researcher.search:call_0_0#0",
        "researcher.search:call_1_0#0",
        "researcher.search:call_1_1#0",
    ]


@EVERY
@WIRES
def test_a_stream_goes_on_and_what_was_streamed_before_comes_again(
    zygote: Zygote, wire: str, every: int
) -> None:
    outcome = check_every_kill(zygote, f"streamed{wire}", SCRIPT, every=every)
    # The client for responses says all of it once more when it is complete.
    assert outcome["result"][:5] == PIECES
    assert set(outcome["result"][5:]) == {"".join(PIECES)}


def check_told(world: World) -> None:
    """The model knows what was said about the call that was refused, also later."""
    for asked in world.model.requests[2:]:
        told = [one for one in asked.body["messages"] if one.get("tool_call_id") == "call_1_1"]
        assert ["rejected by user. not this one" in str(one) for one in told] == [True]


@EVERY
def test_calls_wait_for_their_approval(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(
        zygote, "approved", CAREFUL, every=every, answers=ANSWERS, check=check_told
    )
    assert outcome["result"] == "Done."


@EVERY
def test_approvals_of_a_session_are_remembered_by_it(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(
        zygote, "approved_in_session", CAREFUL, every=every, answers=ANSWERS, check=check_told
    )
    assert outcome["result"] == ["Done.", "Nothing more."]


@pytest.mark.parametrize("case", ["approved", "approved_in_session"])
def test_people_see_what_an_agent_asks(zygote: Zygote, case: str) -> None:
    asked = {
        name: (ANSWERS[name], f'{{"tool":"delete","arguments":{{"path":"{path}"}}}}')
        for name, path in (("delete:call_1_1", "b"), ("delete:call_1_0", "a"))
    }
    assert "Done." in people.check(zygote, case, CAREFUL, asked)


def test_people_see_what_an_agent_as_a_tool_asks(zygote: Zygote) -> None:
    script: dict[str, Any] = {
        "lead": [Reply(tool_calls=[("careful", {"task": "small"})]), "Led."],
        "small": [Reply(tool_calls=[("delete", {"path": "a"})]), "Helped."],
    }
    question = '{"tool":"delete","arguments":{"path":"a"}}'
    asked: people.Answers = {"delete:call_0_0": ({"approved": True}, question)}
    assert people.check(zygote, "delegated", script, asked) == "Led."
