"""Runs that ask people, looked at while they wait: what do they ask, and have they left memory?"""

from __future__ import annotations

from typing import Any

from holdfast.testing.model_server import Script
from tests.adapters.harness import World, Zygote

Answers = dict[str, tuple[Any, str]]
"""By the promise's name: what is answered, and what `holdfast why` has shown before."""


def check(zygote: Zygote, case: str, script: Script, answers: Answers) -> Any:
    """Nothing of the run is in memory when it is answered."""
    given = {name: answer for name, (answer, _) in answers.items()}
    with World(zygote, case, script, given) as world:
        outcome = world.run(rests=True)
        assert outcome is not None
        for (name, (_, question)), rest in zip(answers.items(), outcome["rests"], strict=True):
            assert f"'{name}' asks {question}" in rest, rest
    return outcome["result"]
