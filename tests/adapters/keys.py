"""The keys of a run's journal: nothing of a framework's own tasks and functions is in them, so that
its next version finds what this one has written."""

from __future__ import annotations

from typing import Any

from holdfast.testing.model_server import Script
from tests.adapters.harness import World, Zygote


def check(
    zygote: Zygote, case: str, script: Script, keys: str, answers: dict[str, Any] | None = None
) -> None:
    """keys: all of them, one in each line, in any order."""
    with World(zygote, case, script, answers) as world:
        outcome = world.run()
        assert outcome is not None and "result" in outcome, outcome
    found = [one for one in outcome["keys"] if not one.startswith(("claim ", "end", "attempt "))]
    assert sorted(found) == sorted(line.strip() for line in keys.strip().splitlines())
