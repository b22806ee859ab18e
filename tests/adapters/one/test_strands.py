"""Agents, graphs and swarms of AWS Strands, killed after each of their commits."""

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

CASES = "strands_cases"
EVERY = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.full)])


@EVERY
def test_an_agent_goes_on_where_it_was_killed(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "plain", SCRIPT, every=every)
    assert outcome["result"] == "All is well.\nReally."
    assert "step /search:call_0_0#0/note#0" in outcome["keys"]


@EVERY
def test_a_stream_goes_on_and_what_was_streamed_before_comes_again(
    zygote: Zygote, every: int
) -> None:
    outcome = check_every_kill(zygote, "streamed", SCRIPT, every=every)
    said, _, tokens = outcome["result"]
    assert said == "Let me see.All is well.\nReally."
    assert tokens > 0


REFUNDS: list[Any] = [
    Reply(
        tool_calls=[("refund", {"order": "a"}), ("refund", {"order": "b"}), ("look", {"q": "c"})]
    ),
    "All is well.",
]
ANSWERS = {"sure:call_0_0": "yes", "sure:call_0_1": "no"}


@EVERY
@pytest.mark.parametrize("case", ["approved", "approved_stream"])
def test_interrupts_wait_through_each_kill(zygote: Zygote, case: str, every: int) -> None:
    outcome = check_every_kill(zygote, case, REFUNDS, answers=ANSWERS, every=every)
    assert "All is well." in str(outcome["result"])


def system(asked: Asked) -> str:
    content = asked.body["messages"][0]["content"]
    return content if isinstance(content, str) else content[0]["text"]


def teamwork(asked: Asked) -> Any:
    if system(asked) == "helper":
        refund, look = ("refund", {"order": "a"}), ("look", {"q": "books"})
        return [Reply(tool_calls=[look]), Reply(tool_calls=[refund]), "Helped."][asked.turn]
    helper, search = ("helper", {"input": "help"}), ("search", {"q": "rules"})
    return [Reply(tool_calls=[helper]), Reply(tool_calls=[search]), "All is well."][asked.turn]


@EVERY
def test_an_agent_as_a_tool_goes_on_where_it_was_killed(zygote: Zygote, every: int) -> None:
    answers = {"sure:call_1_0": "yes"}
    outcome = check_every_kill(zygote, "team", teamwork, answers=answers, every=every)
    assert outcome["result"] == "All is well."
    assert "step /helper:call_0_0@0/look:call_0_0#0" in outcome["keys"]


def five(asked: Asked) -> Any:
    node = system(asked)
    if node == "n3":
        return [Reply(tool_calls=[("search", {"q": "x"})]), "n3 says."][asked.turn]
    if node == "n4":
        return [Reply(tool_calls=[("refund", {"order": "a"})]), "n4 says."][asked.turn]
    return f"{node} says."


@EVERY
def test_a_graph_goes_on_inside_the_node_where_it_was_killed(zygote: Zygote, every: int) -> None:
    answers = {"sure:call_0_0": "yes"}
    outcome = check_every_kill(zygote, "graph", five, answers=answers, every=every)
    assert outcome["result"] == {f"n{n}": f"n{n} says." for n in range(1, 6)}
    assert "step /n3@0/search:call_0_0#0/note#0" in outcome["keys"]


def desk(asked: Asked) -> Any:
    if system(asked) == "triage":
        to = {"agent_name": "billing", "message": "yours", "context": {"order": "a"}}
        search, hand_off = ("search", {"q": "x"}), ("handoff_to_agent", to)
        return [Reply(tool_calls=[search]), Reply(tool_calls=[hand_off]), "Handed on."][asked.turn]
    return [Reply(tool_calls=[("refund", {"order": "a"})]), "All is well."][asked.turn]


@EVERY
def test_a_swarm_hands_off_again_after_each_kill(zygote: Zygote, every: int) -> None:
    answers = {"sure:call_0_0": "yes"}
    outcome = check_every_kill(zygote, "swarm", desk, answers=answers, every=every)
    assert outcome["result"] == {"triage": "Handed on.", "billing": "All is well."}


ORDER_A = '{"order":"a"}'


@pytest.mark.parametrize("case", ["approved", "approved_stream"])
def test_people_see_what_an_agent_asks(zygote: Zygote, case: str) -> None:
    asked: people.Answers = {
        "sure:call_0_1": ("no", '{"order":"b"}'),
        "sure:call_0_0": ("yes", ORDER_A),
    }
    assert "All is well." in str(people.check(zygote, case, REFUNDS, asked))


@pytest.mark.parametrize(
    ("case", "script", "name"),
    [
        ("team", teamwork, "sure:call_1_0"),
        ("graph", five, "sure:call_0_0"),
        ("swarm", desk, "sure:call_0_0"),
    ],
)
def test_people_see_what_agents_of_a_team_ask(
    zygote: Zygote, case: str, script: Any, name: str
) -> None:
    assert people.check(zygote, case, script, {name: ("yes", ORDER_A)})


def learning(asked: Asked) -> Any:
    if asked.body["messages"][0]["role"] == "system":
        return f"{asked.prompt}, {asked.turn}"
    facts = [("learn", {"fact": "one"}), ("learn", {"fact": "two"})]
    return Reply(tool_calls=[facts[asked.turn] if asked.turn < 2 else ("stop", {})])


@EVERY
def test_what_tools_change_comes_back_after_each_kill(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "remembers", learning, every=every)
    said, facts, state, heard, tokens = outcome["result"]
    assert (said, facts, state) == ("Enough.\n", ["one", "two"], {"one": 2, "two": 4})
    assert heard == ["one", "one, 0", "two", "two, 1"]
    assert tokens > 0


@EVERY
def test_a_session_holds_each_message_once(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "talk", SCRIPT, every=every)
    assert outcome["result"] == [8, 8, 8]
