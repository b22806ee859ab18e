"""Agents of the OpenAI Agents SDK, killed after each of their commits."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.testing.model_server import Asked, Reply
from tests.adapters import people
from tests.adapters.harness import Zygote, check_every_kill

SCRIPT = [
    Reply(tool_calls=[("search", {"q": "one"})]),
    Reply(text="Let me see.", tool_calls=[("search", {"q": "two"}), ("look", {"q": "three"})]),
    Reply(text="All is well.\nReally.", chunk=4),
]

EVERY = [4, pytest.param(1, marks=pytest.mark.full)]
"""Of the commits after which it is killed."""


CASES = "openai_agents_cases"


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("case", ["plain", "responses"])
def test_an_agent_goes_on_where_it_was_killed(zygote: Zygote, case: str, every: int) -> None:
    outcome = check_every_kill(zygote, case, SCRIPT, every=every)
    assert outcome["result"] == "All is well.\nReally."


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("case", ["streamed", "streamed_responses"])
def test_a_stream_goes_on_where_it_was_killed(zygote: Zygote, case: str, every: int) -> None:
    outcome = check_every_kill(zygote, case, SCRIPT, every=every)
    said, requests, events = outcome["result"]
    assert (said, requests) == ("All is well.\nReally.", 3)
    assert events.count("response.completed") == 3


REFUNDS: list[Any] = [
    Reply(tool_calls=[("refund", {"order": "a"}), ("refund", {"order": "b"})]),
    "All is well.",
]
ANSWERS = {
    "refund:call_0_0": {"approved": True},
    "refund:call_0_1": {"approved": False, "comment": "no"},
}


@pytest.mark.parametrize("case", ["approved", "approved_stream"])
def test_approvals_survive_each_kill(zygote: Zygote, case: str) -> None:
    outcome = check_every_kill(zygote, case, REFUNDS, answers=ANSWERS)
    assert "All is well." in outcome["result"]


def teamwork(asked: Asked) -> Any:
    system = asked.body["messages"][0]
    if system["role"] != "system":  # the helper has no instructions
        refund, look = ("refund", {"order": "a"}), ("look", {"q": "books"})
        return [Reply(tool_calls=[refund, look]), "Helped."][asked.turn]
    if system["content"] == "triage":
        return Reply(tool_calls=[("transfer_to_billing", {})])
    # One after the other: a kill at a commit of the tool would find the helper's model being asked,
    # and what is being asked when its process dies is asked again, under the same key.
    helper, search = ("helper", {"input": "help"}), ("search", {"q": "rules"})
    turns = [None, Reply(tool_calls=[helper]), Reply(tool_calls=[search]), "All is well."]
    return turns[asked.turn]


@pytest.mark.parametrize("every", EVERY)
def test_a_team_goes_on_where_it_was_killed(zygote: Zygote, every: int) -> None:
    answers = {"refund:call_0_0": {"approved": True}}
    outcome = check_every_kill(zygote, "team", teamwork, every=every, answers=answers)
    assert outcome["result"] == "All is well."
    keys = outcome["keys"]
    assert "step /helper:call_1_0@0/call_0_1@0/look#0" in keys
    assert "step /call_2_0@0/search#0/note#0" in keys


def question(agent: str, order: str) -> str:
    return f'{{"tool":"refund","arguments":{{"order":"{order}"}},"agent":"{agent}"}}'


@pytest.mark.parametrize("case", ["approved", "approved_stream"])
def test_people_see_what_an_agent_asks(zygote: Zygote, case: str) -> None:
    asked: people.Answers = {
        "refund:call_0_1": (ANSWERS["refund:call_0_1"], question("agent", "b")),
        "refund:call_0_0": (ANSWERS["refund:call_0_0"], question("agent", "a")),
    }
    assert "All is well." in people.check(zygote, case, REFUNDS, asked)


def test_people_see_what_an_agent_as_a_tool_asks(zygote: Zygote) -> None:
    asked: people.Answers = {"refund:call_0_0": ({"approved": True}, question("helper", "a"))}
    assert people.check(zygote, "team", teamwork, asked) == "All is well."


@pytest.mark.parametrize("every", EVERY)
def test_a_session_holds_each_item_once(zygote: Zygote, every: int) -> None:
    script = {"why": SCRIPT[2], "and": SCRIPT[2], "all": SCRIPT[2]}
    outcome = check_every_kill(zygote, "talk", script, every=every)
    assert outcome["result"] == [["All is well.\nReally."] * 2, 6]
