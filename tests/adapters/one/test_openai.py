"""Loops of one's own around OpenAI's client."""

from __future__ import annotations

import pytest

from holdfast.testing.model_server import Reply
from tests.adapters.harness import Zygote, check_every_kill

SCRIPT = [
    Reply(tool_calls=[("search", {"q": "one"})]),
    Reply(text="Let me see.", tool_calls=[("search", {"q": "two"}), ("search", {"q": "three"})]),
    Reply(text="All is well.\nReally.", chunk=4),
]


CASES = "openai_cases"


@pytest.mark.parametrize("case", ["plain", "streamed"])
def test_a_loop_goes_on_where_it_was_killed(zygote: Zygote, case: str) -> None:
    outcome = check_every_kill(zygote, case, SCRIPT)
    assert outcome["result"] == "All is well.\nReally."
