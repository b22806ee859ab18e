"""Workflows of the Microsoft Agent Framework, killed after each of their commits."""

from __future__ import annotations

import pytest

from holdfast.testing.model_server import Reply
from tests.adapters import people
from tests.adapters.harness import Zygote, check_every_kill

CASES = "agent_framework_flows"
SCRIPT = [Reply(tool_calls=[("search", {"q": "one"})]), Reply(text="All is well.")]
EVERY = pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.full)])


@EVERY
def test_nothing_of_a_superstep_runs_again_while_requests_are_answered_one_by_one(
    zygote: Zygote, every: int
) -> None:
    answers = {"left:1": "yes", "right:1": "no"}
    outcome = check_every_kill(zygote, "superstep", SCRIPT, every=every, answers=answers)
    assert outcome["result"] == [
        [["agent", "All is well."], ["left", "owls: yes"], ["right", "owls: no"]]
    ]


@EVERY
def test_what_executors_remember_comes_back(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "remembers", SCRIPT, every=every)
    cache = {str(n): f"n{n}" for n in (1, 2, 3, 4)}
    assert outcome["result"] == [{"cache": cache, "last": 4}]


@EVERY
def test_a_workflow_inside_a_workflow_waits_and_goes_on(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "nested", SCRIPT, every=every, answers={"sub:1": "yes"})
    assert outcome["result"] == [[["sub", "owls: yes"]]]
    assert "step /sub@1/says#0" in outcome["keys"]


def test_people_see_what_executors_ask(zygote: Zygote) -> None:
    owls = '{"about":"owls"}'
    asked: people.Answers = {"right:1": ("no", owls), "left:1": ("yes", owls)}
    assert people.check(zygote, "superstep", SCRIPT, asked)
    assert people.check(zygote, "nested", SCRIPT, {"sub:1": ("yes", owls)})
