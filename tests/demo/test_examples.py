"""The small examples do what they say, also when they are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 120

KILLED = """
import asyncio, os, signal
from examples import hello

def say(text, **options):
    print(text, **options)
    if "notes on" in text:
        os.kill(os.getpid(), signal.SIGKILL)

hello.print = say
asyncio.run(hello.main())
"""


@pytest.fixture
def start(tmp_path):
    """Starts an example in an empty directory."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, output
    return output


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return
    pytest.fail(f"it never said {text!r}:\n{seen}")


async def test_hello_resumes_where_it_was_killed(start, tmp_path):
    # By itself, as it says so: from outside, its second might be over before the kill.
    first = start("-c", KILLED)
    assert "asking the model: notes on" in first.communicate(timeout=SECONDS_MAX)[0]
    assert first.returncode == -signal.SIGKILL
    second = start("-m", "examples.hello")
    read_until(second, "resumed report-7 at step 4 (3 replayed)")
    async with holdfast.Holdfast(f"sqlite:///{tmp_path / 'agents.db'}", worker=False) as app:
        await app.resolve("report-7", "release", holdfast.Decision(True), early=True)
    output = finish(second)
    assert output.splitlines()[-1] == "https://blog/1"


@pytest.mark.parametrize(
    ("answer", "outcome"), [("approve", "paid 120 € to Ada"), ("decline", "declined by Grace")]
)
def test_an_approval_is_answered_by_a_later_process(start, answer, outcome):
    assert "waiting for a signature" in finish(start("-m", "examples.approval"))
    assert outcome in finish(start("-m", "examples.approval", answer))


def test_a_payment_that_was_made_is_not_made_again(start):
    paid = [finish(start("-m", "examples.approval", "approve")) for _ in range(2)]
    assert paid[0] == paid[1]


def test_your_own_loop_calls_its_tools_and_answers(start):
    assert "Vienna" in finish(start("-m", "examples.own_loop"))
