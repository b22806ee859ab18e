"""Crews and flows that are killed after their commits: a fresh process goes on."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.adapters import people, readers
from tests.adapters.harness import World, Zygote, check_every_kill
from tests.adapters.two.scripts import ALL, ANSWER

CASES = "crewai_cases"
EVERY = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.full)])
READ = '{"q": "one"}Let me see.{"q": "two"}{"q": "three"}' + ANSWER
RESULTS = {
    "own_run": ANSWER,
    "in_workflow": [ANSWER, 3],
    "streamed": [READ, ANSWER],
    "each": [[ANSWER, ANSWER], 6],
    "one_by_one": [[ANSWER, ANSWER], 6],
    "planned": ANSWER,
    "single": ANSWER,
    "consulting": [["from a", "from b", "from c", "from d"], 8],
    "team": [3, "Because.", 5],
    "side_by_side": ["left", "right", "both"],
    "reviewed": "Short.",
    "flow": [[ANSWER], {"begin": 1}, True],
    "asking": ["Dear Bob 2", "fine", 2],
    "racing": ["so slow", ["first", "id", "slow"]],
}
AT_ONCE = ("each", "consulting", "side_by_side", "racing")


def test_a_process_that_has_made_other_runs_goes_on_as_well(zygote: Zygote) -> None:
    script, _ = ALL["own_run"]
    for k in (2, 5, 8):
        with World(zygote, "warm", script) as world:
            # What goes into one commit depends on who is quicker: there may be fewer than eight.
            assert world.run(die_after=k) is None or k == 8
            finished = world.run()
            assert finished is not None
            assert finished["result"] == ANSWER
            asked = Counter(one for one in world.asked() if "before" not in one)
            assert set(asked.values()) == {1}


@EVERY
@pytest.mark.parametrize("case", RESULTS)
def test_it_goes_on_where_it_was_killed(zygote: Zygote, case: str, every: int) -> None:
    script, answers = ALL[case]
    at_once = case in AT_ONCE
    outcome = check_every_kill(zygote, case, script, every=every, answers=answers, at_once=at_once)
    assert outcome["result"] == RESULTS[case]


@pytest.mark.parametrize("every", readers.EVERY)
def test_what_is_called_between_two_pieces_is_called_once(zygote: Zygote, every: int) -> None:
    readers.check(zygote, "heard", every)


QUESTIONS = {
    "reviewed": [
        '{"task":"draft","answer":"A long text."}',
        '{"task":"draft","answer":"Short."}',
    ],
    "asking": [
        '"To whom?"',
        '{"message":"Good?","output":"Dear Bob 1","outcomes":["fine","again"]}',
        '{"message":"Good?","output":"Dear Bob 2","outcomes":["fine","again"]}',
    ],
}


@pytest.mark.parametrize("case", QUESTIONS)
def test_people_see_what_crews_and_flows_ask(zygote: Zygote, case: str) -> None:
    script, answers = ALL[case]
    pairs = zip(answers.items(), QUESTIONS[case], strict=True)
    asked = {name: (answer, question) for (name, answer), question in pairs}
    assert people.check(zygote, case, script, asked) == RESULTS[case]
