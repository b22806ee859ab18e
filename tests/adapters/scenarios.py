"""Conversations drawn by seed: how many turns, how many tools at once, which of them fails at
first, and in what pieces the answers come. Every framework has a case with a tool `search`, and a
step `note` inside it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.testing.model_server import Reply
from tests.adapters.harness import World, Zygote

TURNS_MAX = 3
WIDTH_MAX = 3
KILLS = 3
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 12))]


@dataclass(frozen=True)
class Scenario:
    script: list[Reply]
    failing: dict[str, int] = field(default_factory=dict)  # effects, and how often they fail

    @staticmethod
    def of(seed: int) -> Scenario:
        dice = random.Random(seed)
        questions = (f"question {n}" for n in range(TURNS_MAX * WIDTH_MAX))
        script, effects = [], []
        for _ in range(dice.randint(1, TURNS_MAX)):
            asked = [next(questions) for _ in range(dice.randint(1, WIDTH_MAX))]
            effects += [f"{what} {q}" for q in asked for what in ("note", "search")]
            text = dice.choice(["", "Let me see what there is."])
            calls = [("search", {"q": q}) for q in asked]
            script.append(Reply(text=text, tool_calls=calls, chunk=dice.randint(1, 30)))
        script.append(Reply(text="All is well.\nReally.", chunk=dice.randint(1, 30)))
        return Scenario(script, {dice.choice(effects): 1})


def check(zygote: Zygote, case: str, seed: int) -> None:
    """An undisturbed life, and some that are killed at places drawn by the seed: each of these is
    finished by a fresh process, with the same result and nothing done twice."""
    scenario = Scenario.of(seed)
    with World(zygote, case, scenario.script, failing=scenario.failing) as world:
        undisturbed = world.run()
        assert undisturbed is not None
        asked, effects = sorted(world.asked()), world.effect_names()
    commits = range(1, undisturbed["commits"] + 1)
    for k in random.Random(seed).sample(commits, min(KILLS, len(commits))):
        where = f"seed {seed}, killed after commit {k}"
        with World(zygote, case, scenario.script, failing=scenario.failing) as world:
            # What goes into one commit depends on who is quicker: there may be fewer this time.
            finished = world.run(die_after=k) or world.run()
            assert finished is not None
            assert _sorted(finished["result"]) == _sorted(undisturbed["result"]), (where, finished)
            assert sorted(world.asked()) == asked, where
            assert world.effect_names() == effects, where


def _sorted(value: Any) -> Any:
    """Tools that run at once end in any order, and so do their events."""
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in value.items()}
    return sorted(map(_sorted, value), key=json.dumps) if isinstance(value, list) else value
