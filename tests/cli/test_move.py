"""`holdfast move`, and backups of PostgreSQL: what users see of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.cli.shell import URL
from tests.helpers.processes import SECONDS_MAX, environment, seen, spawned


@pytest.fixture
def target(postgres_url, shell):
    """A store that does not exist yet, and `moved:app`, the agent's app on it."""
    code = "import holdfast\nfrom agent import *\n"
    code += f"app = holdfast.Holdfast({postgres_url!r}, workflows=[essay, release, naps])\n"
    (shell.folder / "moved.py").write_text(code, "utf-8")
    return postgres_url


def waiting_and_pending(shell):
    shell("start", "agent:app", "release", '"it"', "--id", "r1")
    shell.work()
    shell("start", "agent:app", "essay", '"oaks"', "--id", "e1")


def show(shell, id, *options):
    return json.loads(shell("show", id, "--json", *options))


def test_a_store_is_moved_and_its_runs_go_on_there(shell, target):
    waiting_and_pending(shell)
    assert "runs: 2 rows" in shell.process("move", URL, target, "--dry-run")
    said = shell.process("move", URL, target)
    assert "runs: 2 of 2 rows" in said and said.endswith("use the target from now on\n")
    assert shell("move", URL, target).endswith("it was moved before; nothing was left to do\n")
    shell("resolve", "r1", "release", "--approve", "--by", "ann", "--db", target)
    shell.process("worker", "moved:app", "--until-idle")
    assert show(shell, "r1", "--db", target)["output"] == "True ann None"
    assert show(shell, "e1", "--db", target)["output"] == "an essay from notes on oaks"
    assert shell.observer.effects() == {"look_up oaks": 1, "write": 1}


def test_the_source_names_the_target_to_whoever_goes_on_using_it(shell, target):
    waiting_and_pending(shell)
    shell("move", URL, target)
    public = target.rpartition("@")[2]
    for arguments in (
        ["start", "agent:app", "essay", '"elms"'],
        ["worker", "agent:app", "--until-idle"],
        ["cancel", "r1"],
    ):
        said = shell.refused(*arguments)
        assert f"has moved to postgresql://postgres@{public}: use that one" in said
    assert json.loads(shell("runs", "--json")), "it can still be looked at"


def test_a_living_worker_is_named(shell, target):
    shell("db", "upgrade")
    with spawned("worker", "agent:app", cwd=shell.folder), seen(shell.db) as store:
        (pid,) = store.await_workers(1)
        said = shell.refused("move", URL, target)
        assert f"(pid {pid} on " in said and "Stop them first, with SIGTERM" in said


def test_progress_is_json_lines_on_request(shell, target):
    waiting_and_pending(shell)
    plan = json.loads(shell("move", URL, target, "--dry-run", "--json"))
    assert plan["runs"] == 2 and plan["inbox"] == 0
    lines = [json.loads(line) for line in shell("move", URL, target, "--json").splitlines()]
    assert {"what": "runs", "done": 2, "total": 2} in lines
    assert list(lines[-1]) == ["done"]


@pytest.mark.skipif(sys.platform == "win32", reason="no pty")
def test_a_terminal_gets_bars(shell, target):
    import pty

    waiting_and_pending(shell)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "move", URL, target],
        cwd=shell.folder,
        env=environment(TERM="xterm", COLUMNS="80"),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 65536):
            said += chunk
    except OSError:
        pass  # the other end is closed
    os.close(ours)
    assert process.wait(SECONDS_MAX) == 0
    text = said.decode()
    assert "2/2" in text and "━" in text and "use the target" in text


def test_a_move_is_taken_back(shell, target):
    waiting_and_pending(shell)
    assert "nothing to undo" in shell.refused("move", URL, target, "--undo")
    # Killed after the first batch.
    (shell.folder / "interrupted.py").write_text(
        "import asyncio, os, signal, sys\n"
        "from holdfast import store\n"
        "def report(progress):\n"
        "    if progress.what == 'journal':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(store.move(sys.argv[1], sys.argv[2], report))\n"
    )
    command = [sys.executable, "interrupted.py", URL, target]
    killed = subprocess.run(
        command, cwd=shell.folder, env=environment(), timeout=SECONDS_MAX, check=False
    )
    assert killed.returncode == -9
    said = shell.refused("start", "agent:app", "essay", '"elms"')
    assert "is being moved to" in said and "holdfast move --undo" in said
    assert "the move was taken back" in shell.process("move", "--undo", URL, target)
    assert json.loads(shell("runs", "--json", "--db", target)) == []
    shell.work()
    assert show(shell, "e1")["status"] == "completed"
    assert "moved" in shell("move", URL, target)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sqlite:///absent.db", "sqlite:///new.db"], "There is no store"),
        ([URL, URL], "to itself"),
        ([URL, "sqlite://:memory:"], "only a file"),
        (["sqlite://:memory:", "sqlite:///new.db"], "only a file"),
        ([URL, "mysql://x/y"], "no known kind of store"),
        ([URL, "postgresql://u@127.0.0.1:1/y"], "cannot be reached"),
        ([URL, "postgresql://u@h/y?schema=No"], "cannot be a schema"),
        ([URL, "sqlite:///agent.py"], "not a SQLite database"),
        ([URL, "sqlite:///no/such/folder/x.db"], "does not exist"),
        ([URL, "sqlite:///new.db", "--undo"], "nothing to undo"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_wrong_move_is_one_line_that_names_the_trouble(shell, arguments, said):
    shell("db", "upgrade")
    assert said in shell.refused("move", *arguments)
    shell("start", "agent:app", "essay", '"oaks"')


@pytest.mark.parametrize(
    "arguments",
    [["move"], ["move", URL], ["move", URL, "sqlite:///new.db", "--undo", "--dry-run"]],
    ids=" ".join,
)
def test_a_move_that_makes_no_sense_is_refused(shell, arguments):
    shell.refused(*arguments, code=2)


def test_a_postgres_store_is_backed_up_and_restored(shell, target):
    waiting_and_pending(shell)
    shell("move", URL, target)
    shell.process("backup", "copy.db", "--db", target)
    assert "exists" in shell.refused("backup", "copy.db", "--db", target)
    assert "--force" in shell.refused("restore", "copy.db", "--db", target)
    shell("cancel", "r1", "--db", target)
    shell.process("restore", "copy.db", "--force", "--db", target)
    assert show(shell, "r1", "--db", target)["status"] == "waiting"
    shell("restore", "copy.db", "--db", "sqlite:///restored.db")
    assert len(json.loads(shell("runs", "--json", "--db", "restored.db"))) == 2
