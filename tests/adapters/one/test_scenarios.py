"""Agents of each framework in conversations that were drawn by seed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adapters import scenarios
from tests.adapters.harness import Zygote

AGENTS = {
    "openai_cases": ["plain", "streamed"],
    "openai_agents_cases": ["plain", "streamed"],
    "pydantic_ai_cases": ["started", "streamed"],
    "langgraph_cases": ["agent", "streamed"],
    "strands_cases": ["plain", "streamed"],
    "agent_framework_cases": ["started", "streamed"],
    "google_adk_cases": ["plain", "streamed"],
}


@pytest.fixture(scope="module", params=sorted(AGENTS))
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    zygote = Zygote(f"tests.adapters.one.{request.param}")
    yield zygote
    zygote.close()


@pytest.mark.parametrize("seed", scenarios.SEEDS)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_whatever_the_conversation_it_goes_on_where_it_was_killed(
    zygote: Zygote, streams: bool, seed: int
) -> None:
    scenarios.check(zygote, AGENTS[zygote.cases][streams], seed)
