"""Crews in conversations that were drawn by seed."""

from __future__ import annotations

import pytest

from tests.adapters import scenarios
from tests.adapters.harness import Zygote

CASES = "crewai_cases"


@pytest.mark.parametrize("seed", scenarios.SEEDS)
@pytest.mark.parametrize("case", ["own_run", "streamed"])
def test_whatever_the_conversation_it_goes_on_where_it_was_killed(
    zygote: Zygote, case: str, seed: int
) -> None:
    scenarios.check(zygote, case, seed)
