"""`holdfast crash-test`, as its user calls it, on a file with an unchanged agent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from holdfast.testing.model_server import ModelServer, Reply
from tests.adapters.harness import QUIET
from tests.helpers.processes import environment

TOOL = '''
import os

def refund(order: str) -> str:
    """Gives money back."""
    with open("ledger", "a") as ledger:
        ledger.write(order + "\\n")
    return f"refunded {order}"

URL = os.environ["MODEL"]
'''
SCRIPT = [Reply(tool_calls=[("refund", {"order": "7"})]), Reply(text="It is done.")]


def crash_test(
    folder: Path,
    code: str,
    *given: str,
    asked: int = len(SCRIPT),
    every: int = 5,
    exit_code: int = 0,
) -> dict[str, Any]:
    """What it says of the agent that `code` makes."""
    (folder / "my_agent.py").write_text(TOOL + code)
    command = [sys.executable, "-m", "holdfast", "crash-test", "my_agent.py", *given]
    with ModelServer(SCRIPT) as model:
        done = subprocess.run(
            [*command, "--yes", "--json", "--every", str(every)],
            cwd=folder,
            env=environment(**QUIET, MODEL=model.url),
            capture_output=True,
            text=True,
        )
        assert done.returncode == exit_code, done.stderr
        assert len(model.requests) == asked  # once: then they come from a recording
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def assert_only_durable_agents_go_on(told: dict[str, Any]) -> None:
    assert told["without"]["finished"] == told["without"]["kills"] >= 1
    assert told["without"]["models_repeated"] + told["without"]["effects_repeated"] >= 1
    assert told["durable"]["finished"] == told["durable"]["kills"] >= 1
    assert told["durable"]["models_repeated"] == told["durable"]["effects_repeated"] == 0
    assert told["holds"]
