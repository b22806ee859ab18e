"""Agents of Google ADK, killed after each of their commits."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from holdfast.testing.model_server import Asked, Reply
from tests.adapters import people
from tests.adapters.harness import World, Zygote, check_every_kill

SCRIPT = [
    Reply(tool_calls=[("search", {"q": "one"})]),
    Reply(text="Let me see.", tool_calls=[("search", {"q": "two"}), ("look", {"q": "three"})]),
    Reply(text="All is well.\nReally.", chunk=4),
]

EVERY = [7, pytest.param(1, marks=pytest.mark.full)]
"""Of the commits after which it is killed."""

CASES = "google_adk_cases"


@pytest.mark.parametrize("every", EVERY)
def test_an_agent_goes_on_where_it_was_killed(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "plain", SCRIPT, every=every)
    assert outcome["result"] == "All is well.\nReally."
    keys = outcome["keys"]
    assert "step /agent.model#2" in keys
    assert "step /search:call_1_0#0/note#0" in keys


@pytest.mark.parametrize("every", EVERY)
def test_a_stream_goes_on_where_it_was_killed(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "streamed", SCRIPT, every=every)
    assert outcome["result"] == [["All is well.\nReally."], {"found": ["one", "two"]}, 6, 14]


REFUNDS: list[Any] = [
    Reply(
        tool_calls=[
            ("refund", {"order": "a"}),
            ("refund", {"order": "b"}),
            ("close", {"order": "c"}),
            ("open_ticket", {"text": "d"}),
        ]
    ),
    "All is well.",
    "All is well.",
    "All is well.",
]
ANSWERS = {
    "refund:call_0_0": {"approved": True},
    "refund:call_0_1": {"approved": False, "comment": "no"},
    "close:call_0_2": {"approved": True},
    "open_ticket:call_0_3": {"status": "done"},
}


@pytest.mark.parametrize("every", EVERY)
def test_what_people_are_asked_survives_each_kill(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "approved", REFUNDS, every=every, answers=ANSWERS)
    assert outcome["result"] == "All is well."


def role(asked: Asked) -> str:
    return str(asked.body["systemInstruction"]["parts"][0]["text"])


def teamwork(asked: Asked) -> Any:
    if "You are the helper." in role(asked):
        refund, look = ("refund", {"order": "a"}), ("look", {"q": "books"})
        return [Reply(tool_calls=[refund, look]), "Helped."][asked.turn]
    if "You are triage." in role(asked):
        return Reply(tool_calls=[("transfer_to_agent", {"agent_name": "billing"})])
    # One after the other: a kill at a commit of the tool would find the helper's model being asked,
    # and what is being asked when its process dies is asked again, under the same key.
    helper, search = ("helper", {"request": "help"}), ("search", {"q": "rules"})
    return [Reply(tool_calls=[helper]), Reply(tool_calls=[search]), "All is well."][asked.turn]


TEAM_ANSWERS = {"refund:call_0_0": {"approved": True}}


@pytest.mark.parametrize("every", EVERY)
def test_a_team_goes_on_where_it_was_killed(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "team", teamwork, every=every, answers=TEAM_ANSWERS)
    assert outcome["result"] == "All is well."
    keys = outcome["keys"]
    assert "step /helper:call_0_0@0/look:call_0_1#0" in keys
    assert "step /search:call_1_0#0/note#0" in keys


def chores(asked: Asked) -> Any:
    name = re.findall(r"You are (\w+)\.", role(asked))[0]
    if name == "critic":
        looks = [("look", {"q": "once"}), ("look", {"q": "twice"}), ("exit_loop", {})]
        return Reply(tool_calls=[looks[asked.turn]])
    return [Reply(tool_calls=[("search", {"q": name})]), f"{name} is done."][asked.turn]


@pytest.mark.parametrize("every", EVERY)
def test_agents_in_a_loop_and_a_row_go_on_where_they_were_killed(
    zygote: Zygote, every: int
) -> None:
    outcome = check_every_kill(zygote, "row", chores, every=every)
    assert outcome["result"] == "last is done."


@pytest.mark.parametrize("every", EVERY)
def test_parallel_agents_go_on_where_they_were_killed(zygote: Zygote, every: int) -> None:
    with World(zygote, "beside", chores) as world:
        undisturbed = world.run()
        assert undisturbed is not None
        assert undisturbed["result"] == ["left is done.", "right is done."]
        needed, effects = Counter(world.asked()), world.effect_names()
    for k in range(1, undisturbed["commits"], every):
        with World(zygote, "beside", chores) as world:
            world.run(die_after=k)
            finished = world.run()
            assert finished is not None and finished["result"] == undisturbed["result"], k
            assert world.effect_names() == effects, k
            # One may be under way when the other's answer is on record.
            again = Counter(world.asked()) - needed
            assert sum(again.values()) <= 1, k
            assert set(world.asked()) == set(needed), k


def turns(asked: Asked) -> Any:
    return [*SCRIPT[:2], "One.", "Two."][asked.turn]


@pytest.mark.parametrize("every", EVERY)
def test_a_session_in_a_file_holds_each_event_once(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "talk", turns, every=every)
    assert outcome["result"] == [["One.", "Two."], [8, {"found": ["one", "two"]}]]


PUBLISHED = {"adk_request_input:publish": {"result": "yes"}}


@pytest.mark.parametrize("every", EVERY)
def test_a_workflow_goes_on_at_its_node_and_in_it_at_the_call(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "graph", chores, every=every, answers=PUBLISHED)
    assert outcome["result"] == "published: yes"


def question(tool: str, **arguments: str) -> str:
    return json.dumps({"tool": tool, "arguments": arguments}, separators=(",", ":"))


def test_people_see_what_an_agent_asks(zygote: Zygote) -> None:
    questions = {
        "refund:call_0_0": question("refund", order="a"),
        "refund:call_0_1": question("refund", order="b"),
        "close:call_0_2": '{"tool":"close","arguments":{"order":"c"},"hint":"close c?"}',
        "open_ticket:call_0_3": question("open_ticket", text="d"),
    }
    asked = {name: (ANSWERS[name], questions[name]) for name in reversed(questions)}
    assert people.check(zygote, "approved", REFUNDS, asked) == "All is well."


def test_people_see_what_teams_and_nodes_ask(zygote: Zygote) -> None:
    asked: people.Answers = {"refund:call_0_0": ({"approved": True}, question("refund", order="a"))}
    assert people.check(zygote, "team", teamwork, asked) == "All is well."
    message = question("adk_request_input", interruptId="publish", message="publish?")
    publish = {"adk_request_input:publish": ({"result": "yes"}, message)}
    assert people.check(zygote, "graph", chores, publish) == "published: yes"


def test_the_model_hears_what_was_said_about_a_refusal(zygote: Zygote) -> None:
    with World(zygote, "approved", REFUNDS, ANSWERS) as world:
        assert world.run() is not None
        told = json.dumps(world.model.requests[-1].body)
    assert '"response": {"error": "This tool call is rejected.", "comment": "no"}' in told
