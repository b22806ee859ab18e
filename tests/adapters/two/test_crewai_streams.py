"""Flows that stream, and are killed after their commits: what was said comes again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.adapters import readers
from tests.adapters.harness import Zygote, check_every_kill
from tests.adapters.two.scripts import ALONE, ANSWER

CASES = "crewai_streams"
EVERY = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.full)])
SAID = '{"q": "one"}Let me see.{"q": "two"}{"q": "three"}' + ANSWER
RESULTS: dict[str, Any] = {
    "streamed": [SAID, 2, f"noted: {ANSWER}", True, True],
    "streamed_in_def": [SAID, 2, f"noted: {ANSWER}", True, True],
    "own_run": f"noted: {ANSWER}",
}


@EVERY
@pytest.mark.parametrize("case", RESULTS)
def test_a_flow_that_streams_goes_on_where_it_was_killed(
    zygote: Zygote, case: str, every: int
) -> None:
    outcome = check_every_kill(zygote, case, ALONE, every=every)
    assert outcome["result"] == RESULTS[case]


@pytest.mark.parametrize("every", readers.EVERY)
def test_what_is_called_between_two_frames_is_called_once(zygote: Zygote, every: int) -> None:
    readers.check(zygote, "heard", every)
