"""Agents of Pydantic AI, killed after each of their commits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.model_server import Reply
from tests.adapters.harness import Zygote, check_every_kill

SCRIPT = [
    Reply(tool_calls=[("search", {"q": "one"})]),
    Reply(text="Let me see.", tool_calls=[("search", {"q": "two"}), ("search", {"q": "three"})]),
    Reply(text="All is well.\nReally.", chunk=4),
]


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    zygote = Zygote("tests.adapters.one.pydantic_ai_cases")
    yield zygote
    zygote.close()


@pytest.mark.parametrize("case", ["started"])
def test_an_agent_goes_on_where_it_was_killed(zygote: Zygote, case: str) -> None:
    outcome = check_every_kill(zygote, case, SCRIPT)
    assert outcome["result"] == "All is well.\nReally."
