"""Agents of the OpenAI Agents SDK, killed after each of their commits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.model_server import Reply
from tests.adapters.harness import Zygote, check_every_kill

SCRIPT = [
    Reply(tool_calls=[("search", {"q": "one"})]),
    Reply(text="Let me see.", tool_calls=[("search", {"q": "two"}), ("look", {"q": "three"})]),
    Reply(text="All is well.\nReally.", chunk=4),
]

EVERY = [4, pytest.param(1, marks=pytest.mark.full)]
"""Of the commits after which it is killed."""


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    zygote = Zygote("tests.adapters.one.openai_agents_cases")
    yield zygote
    zygote.close()


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("case", ["plain", "responses"])
def test_an_agent_goes_on_where_it_was_killed(zygote: Zygote, case: str, every: int) -> None:
    outcome = check_every_kill(zygote, case, SCRIPT, every=every)
    assert outcome["result"] == "All is well.\nReally."


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("case", ["streamed", "streamed_responses"])
def test_a_stream_goes_on_where_it_was_killed(zygote: Zygote, case: str, every: int) -> None:
    outcome = check_every_kill(zygote, case, SCRIPT, every=every)
    said, requests, events = outcome["result"]
    assert (said, requests) == ("All is well.\nReally.", 3)
    assert events.count("response.completed") == 3
