"""Deaths during a commit: what was committed is not done again, what was not is."""

from __future__ import annotations

import signal

import pytest

import holdfast
from tests.crash.agent import line
from tests.crash.fleet import Fleet, Observer


@pytest.mark.parametrize(
    ("where", "effects"),
    [
        ("before", ["one", "two", "two", "three"]),
        ("after", ["one", "two", "three"]),
    ],
)
async def test_a_kill_in_the_middle_of_a_commit_loses_and_repeats_nothing_committed(
    where: str, effects: list[str], app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    trap = {"where": where, "key": "effect#1", "number": "SIGKILL"}
    first = await fleet.add(trap=trap)
    observer.holds = lambda effect: effect.name == "one"
    run = await app.start(line, ["one", "two", "three"])
    held = await observer.sees("one", pid=first.pid)
    await fleet.add()
    held.let_go()
    assert await first.ended() == -signal.SIGKILL
    tokens = await run.result()
    assert observer.names() == effects
    last = {effect.name: effect.token for effect in observer.effects}
    assert tokens == [last["one"], last["two"], last["three"]]
