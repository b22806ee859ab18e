"""Teams of agents of the Microsoft Agent Framework, killed after each of their commits."""

from __future__ import annotations

import pytest

from holdfast.testing.model_server import Reply
from tests.adapters import people
from tests.adapters.harness import World, Zygote, check_every_kill
from tests.adapters.one.agent_framework_teams import (
    plays_handoff,
    plays_magentic,
    plays_sequential,
)

CASES = "agent_framework_teams"
SOME = pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.full)])
CAREFUL = [
    Reply(
        tool_calls=[("delete", {"path": "a"}), ("delete", {"path": "b"}), ("search", {"q": "c"})]
    ),
    Reply(text="Done."),
]


@SOME
def test_the_plan_of_magentic_is_reviewed_and_revised(zygote: Zygote, every: int) -> None:
    more = {"role": "user", "contents": [{"type": "text", "text": "more owls"}]}
    answers = {
        "magentic_orchestrator:1": {"review": [more]},
        "magentic_orchestrator:2": {"review": []},
    }
    outcome = check_every_kill(zygote, "magentic", plays_magentic, every=every, answers=answers)
    assert outcome["result"] == ["They hunt at night."]


@SOME
def test_a_handoff_is_made_once_and_the_user_is_asked(zygote: Zygote, every: int) -> None:
    answers = {"refunds:1": "order 7"}
    outcome = check_every_kill(zygote, "handoff", plays_handoff, every=every, answers=answers)
    assert outcome["result"] == ["Which order?", "Refunded, bye."]


@SOME
def test_what_a_sequence_streamed_comes_again_as_it_was(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "sequential", plays_sequential, every=every)
    said = ["One.\n", "Two."]
    assert outcome["result"] == [
        "invoked input-conversation", "completed input-conversation",
        "invoked first", *said, "completed first",
        "invoked second", *said, "completed second",
    ]  # fmt: skip


@SOME
def test_calls_of_an_agent_in_a_workflow_are_approved_one_by_one(
    zygote: Zygote, every: int
) -> None:
    answers = {"delete:call_0_0": {"approved": True}, "delete:call_0_1": {"approved": False}}
    outcome = check_every_kill(zygote, "approves", CAREFUL, every=every, answers=answers)
    assert outcome["result"] == ["Done."]


@pytest.mark.full
@pytest.mark.parametrize("every", [1])
def test_a_group_chat_goes_on_where_it_was_killed(zygote: Zygote, every: int) -> None:
    outcome = check_every_kill(zygote, "group_chat", plays_sequential, every=every)
    assert "maximum number of rounds" in outcome["result"][0]


def test_agents_at_once_are_steps_of_their_own(zygote: Zygote) -> None:
    with World(zygote, "concurrent", {"owls": "Hoo."}) as world:
        outcome = world.run()
        assert outcome is not None and outcome["result"] == ["Hoo.Hoo."]
        assert {"step /left#0/left.model#0", "step /right#0/right.model#0"} <= {*outcome["keys"]}


def test_people_see_what_teams_ask(zygote: Zygote) -> None:
    plan: people.Answers = {"magentic_orchestrator:1": ({"review": []}, '{"plan":')}
    assert people.check(zygote, "magentic", plays_magentic, plan)
    order = {"refunds:1": ("order 7", '{"agent_response":"Which order?"}')}
    assert people.check(zygote, "handoff", plays_handoff, order)
    asked = {
        f"delete:call_0_{n}": (
            {"approved": True},
            f'{{"tool":"delete","arguments":{{"path":"{path}"}}}}',
        )
        for n, path in enumerate("ab")
    }
    assert people.check(zygote, "approves", CAREFUL, asked) == ["Done."]
