"""Crews that are killed after each of their commits."""

from __future__ import annotations

import pytest

from holdfast.testing.model_server import Reply
from tests.adapters.harness import Zygote, check_every_kill

SCRIPT = [
    Reply(tool_calls=[("search", {"q": "one"})]),
    Reply(text="Let me see.", tool_calls=[("search", {"q": "two"}), ("search", {"q": "three"})]),
    Reply(text="All is well.\nReally.", chunk=4),
]

CASES = "crewai_cases"


ANSWER = "All is well.\nReally."
READ = '{"q": "one"}Let me see.{"q": "two"}{"q": "three"}' + ANSWER


EVERY = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.full)])


@EVERY
@pytest.mark.parametrize(
    ("case", "result"),
    [("own_run", ANSWER), ("in_workflow", [ANSWER, 3]), ("streamed", [READ, ANSWER])],
)
def test_a_crew_goes_on_where_it_was_killed(
    zygote: Zygote, case: str, result: object, every: int
) -> None:
    outcome = check_every_kill(zygote, case, SCRIPT, every=every)
    assert outcome["result"] == result
