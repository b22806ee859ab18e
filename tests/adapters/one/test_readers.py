"""Streams whose readers call steps between two events, killed after each of their commits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adapters import readers
from tests.adapters.harness import Zygote

CASES = [
    "openai_cases.heard",
    "openai_agents_cases.heard",
    "pydantic_ai_cases.heard",
    "pydantic_ai_cases.handled",
    "langgraph_cases.heard",
    "strands_cases.heard",
    "agent_framework_cases.heard",
    "agent_framework_flows.heard",
    "google_adk_cases.heard",
]


@pytest.fixture(scope="module", params=dict.fromkeys(case.partition(".")[0] for case in CASES))
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    zygote = Zygote(f"tests.adapters.one.{request.param}")
    yield zygote
    zygote.close()


@pytest.mark.parametrize("every", readers.EVERY)
def test_what_is_called_between_two_events_is_called_once(zygote: Zygote, every: int) -> None:
    for case in CASES:
        module, _, name = case.partition(".")
        if module == zygote.cases:
            readers.check(zygote, name, every)
