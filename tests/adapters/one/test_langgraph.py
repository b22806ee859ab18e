"""Agents and graphs of LangChain and LangGraph: killed after each commit, and gone on with."""

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
    zygote = Zygote("tests.adapters.one.langgraph_cases")
    yield zygote
    zygote.close()


TOLD = ["found one", "found three", "found two"]


def test_an_agent_goes_on_where_it_was_killed(zygote: Zygote) -> None:
    outcome = check_every_kill(zygote, "agent", SCRIPT)
    assert outcome["result"][-1] == ["ai", "All is well.\nReally."]
    assert sorted(text for kind, text in outcome["result"] if kind == "tool") == TOLD


def test_a_stream_goes_on_and_what_was_streamed_before_comes_again(zygote: Zygote) -> None:
    tokens, found, updates = check_every_kill(zygote, "streamed", SCRIPT)["result"]
    assert [token for token in tokens if token] == [
        "Let me see.", "All ", "is w", "ell.", "\nRea", "lly."
    ]  # fmt: skip
    assert found == TOLD
    assert updates == ["model", "tools", "model", "tools", "tools", "model"]
