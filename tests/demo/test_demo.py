"""The demo keeps its promise under real SIGKILLs, and says so only if it is true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo.ledger import Count, Ledger, count, tally
from examples.demo.story import ROWS, Call

ROOT = Path(__file__).parents[2]


def play(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Plays it from another directory, its files under `folder`."""
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo"), "--fast", *options],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONUTF8": "1", "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=240,
    )


def cells(screen: str, name: str) -> list[int]:
    """The numbers of one line of the final table."""
    line = next(line for line in screen.splitlines() if line.strip().startswith(name))
    return [int(number) for number in re.findall(r"\d+", line)]


def test_after_six_kills_nothing_is_repeated_and_nothing_lost(tmp_path):
    done = play(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    # needed, made, in flight at a kill, refused, repeated, lost
    assert cells(done.stdout, "LLM calls") == [8, 11, 2, 1, 0, 0]
    assert cells(done.stdout, "tool calls") == [9, 12, 2, 1, 0, 0]
    assert cells(done.stdout, "effects") == [9, 9, 0, 0]
    assert cells(done.stdout, "steps, approval") == [19, 19, 0]
    assert done.stdout.count("✖ SIGKILL") == 6
    assert len(re.findall(r"took over \d+ ms after the kill", done.stdout)) == 4
    assert not list(tmp_path.iterdir()), "it left files behind"


def test_an_effect_outside_of_a_step_happens_twice_and_is_noticed(tmp_path):
    done = play(tmp_path, "--sabotage")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "10 effects, but 9 were needed" in done.stdout
    assert "every effect happened once" not in done.stdout


# The count


def whole_story() -> tuple[list[Call], dict[str, float], set[str]]:
    """Everything went well: each step called once by worker 1, journaled a second later."""
    calls = [
        Call(row.service, row.label, row.key, 1, float(at), 200, at + 0.5)
        for at, row in enumerate(ROWS)
        if row.service in ("llm", "tool")
    ]
    journaled_at = {row.key: at + 1.0 for at, row in enumerate(ROWS)}
    return calls, journaled_at, {call.key for call in calls if call.service == "tool"}


def complaints(calls, journaled_at, effects, killed=None) -> list[str]:
    killed = killed or {}
    return tally(calls, effects, journaled_at, killed, kills_needed=len(killed)).complaints()


def test_a_story_without_accidents_is_right():
    assert complaints(*whole_story()) == []


def test_a_call_made_again_because_its_worker_was_killed_is_counted_and_allowed():
    calls, journaled_at, effects = whole_story()
    calls.insert(0, Call("llm", "plan", ROWS[0].key, 7, -2.0))
    assert complaints(calls, journaled_at, effects, {7: -1.0}) == []
    assert count("llm", calls, journaled_at, {7: -1.0}).in_flight == 1


def test_a_call_that_was_refused_is_counted_and_allowed():
    calls, journaled_at, effects = whole_story()
    calls.insert(0, Call("llm", "draft", "k", 1, -2.0, 429, -1.0))
    assert complaints(calls, journaled_at, effects) == []
    assert count("llm", calls, journaled_at, {}).refused == 1


def test_a_call_after_its_step_was_done_is_a_broken_promise():
    calls, journaled_at, effects = whole_story()
    calls.append(Call("llm", "plan", ROWS[0].key, 2, 99.0, 200, 99.5))
    assert complaints(calls, journaled_at, effects, {1: 50.0}) == [
        "1 LLM calls were repeated after their step was done"
    ]


def test_a_call_made_twice_for_no_reason_is_noticed():
    calls, journaled_at, effects = whole_story()
    calls.insert(0, Call("llm", "plan", ROWS[0].key, 1, -2.0, 200, -1.0))
    assert complaints(calls, journaled_at, effects) == ["+1 LLM calls that nothing explains"]


def test_a_step_that_never_came_is_noticed():
    calls, journaled_at, effects = whole_story()
    del journaled_at[ROWS[-1].key]
    assert "18 steps done, but 19 were needed" in complaints(calls, journaled_at, effects)


@pytest.mark.parametrize("change", [lambda e: e | {"other"}, lambda e: set(sorted(e)[1:])])
def test_one_effect_too_many_or_too_few_is_noticed(change):
    calls, journaled_at, effects = whole_story()
    assert any("effects" in c for c in complaints(calls, journaled_at, change(effects)))


def test_a_kill_that_did_not_happen_is_noticed():
    fine = Count(needed=0, made=0, in_flight=0, refused=0, repeated=0, lost=0)
    ledger = Ledger(fine, fine, 0, 0, 0, 0, kills=3, kills_needed=4)
    assert ledger.complaints() == ["3 kills, but 4 were planned"]
