"""Agents and graphs of LangChain and LangGraph: killed after each commit, and gone on with."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.testing.model_server import Reply
from tests.adapters import people
from tests.adapters.harness import Zygote, check_every_kill

SCRIPT = [
    Reply(tool_calls=[("search", {"q": "one"})]),
    Reply(text="Let me see.", tool_calls=[("search", {"q": "two"}), ("search", {"q": "three"})]),
    Reply(text="All is well.\nReally.", chunk=4),
]


CASES = "langgraph_cases"


EVERY = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.full)])
TOLD = ["found one", "found three", "found two"]


@EVERY
def test_an_agent_goes_on_where_it_was_killed(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "agent", SCRIPT, every=every)
    assert outcome["result"][-1] == ["ai", "All is well.\nReally."]
    assert sorted(text for kind, text in outcome["result"] if kind == "tool") == TOLD


@EVERY
def test_a_stream_goes_on_and_what_was_streamed_before_comes_again(
    zygote: Zygote, every: int
) -> None:
    tokens, found, updates = check_every_kill(zygote, "streamed", SCRIPT, every=every)["result"]
    assert [token for token in tokens if token] == [
        "Let me see.", "All ", "is w", "ell.", "\nRea", "lly."
    ]  # fmt: skip
    assert found == TOLD
    assert updates == ["model", "tools", "model", "tools", "tools", "model"]


# Graphs


@EVERY
def test_of_a_superstep_only_the_node_that_failed_runs_again(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "superstep", {"left": "L", "right": "R"}, every=every)
    assert sorted(outcome["result"]["found"]) == ["L", "R", "failing", "plain", "steady"]


# People


ANSWERS = {
    "publish:1": "Owls",
    "archive:1": "attic",
    "publish:1#2": "Ada",
    "inner:2/check:1": "yes",
}
HELPED: dict[str, Any] = {
    "boss": [Reply(tool_calls=[("helper", {"task": "small"})]), "Thanks."],
    "small": [Reply(tool_calls=[("delete", {"path": "a"})]), "Helped."],
}


@EVERY
def test_several_interrupts_are_answered_one_by_one(zygote: Zygote, every: int) -> None:
    script = {"verdict": "fine"}
    outcome = check_every_kill(zygote, "interrupted", script, answers=ANSWERS, every=every)
    assert set(outcome["result"]["found"]) == {"Owls by Ada", "attic", "fine", "yes"}


@EVERY
def test_the_approvals_of_langchain_wait(zygote: Zygote, every: int) -> None:
    one = {"decisions": [{"type": "approve"}]}
    two = {"decisions": [{"type": "approve"}, {"type": "reject", "message": "no"}]}
    name = "HumanInTheLoopMiddleware.after_model"
    answers = {f"{name}:2": one, f"{name}:5": two}
    outcome = check_every_kill(zygote, "approved", SCRIPT, answers=answers, every=every)
    told = [text for kind, text in outcome["result"] if kind == "tool"]
    assert sorted(told) == [
        "User rejected the tool call for `search` with reason: no",
        "found one",
        "found two",
    ]


def test_people_see_what_a_graph_asks(zygote: Zygote) -> None:
    asked: people.Answers = {
        "publish:1": ("Owls", '{"title of":[]}'),
        "archive:1": ("attic", '"where"'),
        "publish:1#2": ("Ada", '"author"'),
        "inner:2/check:1": ("yes", '"sure"'),
    }
    found = people.check(zygote, "interrupted", {"verdict": "fine"}, asked)["found"]
    assert set(found) == {"Owls by Ada", "attic", "fine", "yes"}


def test_people_see_what_an_agent_as_a_tool_asks(zygote: Zygote) -> None:
    asked: people.Answers = {"call_0_0": ("yes", '{"delete":"a"}')}
    said = people.check(zygote, "helped", HELPED, asked)
    assert said == [["human", "boss"], ["ai", ""], ["tool", "Helped."], ["ai", "Thanks."]]


# Threads


@EVERY
def test_a_thread_is_as_if_nobody_had_died(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "conversation", SCRIPT, every=every)
    said = outcome["result"]
    assert said[:1] + said[-2:] == ["why", "and then", "All is well.\nReally."]
    assert len(said) == 9  # six for the first question and its tools, an answer, and a turn more
