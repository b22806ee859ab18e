"""What the command line says when it cannot do as it is told."""

from __future__ import annotations

import json

import pytest

from tests.cli.shell import refused


def test_the_version_is_shown(shell):
    assert shell.process("--version").startswith("holdfast 0.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["worker", "agent"], "module:app"),
        (["worker", "agnet:app"], "no module 'agnet'"),
        (["worker", "agent:ap"], "it has app, memory, empty"),
        (["worker", "agent:not_an_app"], "is a int, not a holdfast.Holdfast"),
        (["worker", "agent:memory"], "use a file"),
        (["worker", "agent:empty"], "lists no workflows"),
        (["start", "agent:app", "essya"], "it lists: ask, breaks"),
        (["start", "agent:app", "essay"], "topic"),
        (["start", "agent:app", "essay", "7"], "topic"),
        (["runs", "--app", "agnet:app"], "no module 'agnet'"),
        (["runs", "--db", "mysql://x/y"], "no known kind of store"),
        (["runs", "--db", "postgresql://u@127.0.0.1:1/y"], "cannot be reached"),
        (["show", "nobody"], "nobody"),
        (["why", "nobody"], "nobody"),
        (["cancel", "nobody"], "nobody"),
        (["pause", "nobody"], "nobody"),
        (["resume", "nobody"], "nobody"),
        (["rerun", "nobody"], "nobody"),
        (["fork", "nobody", "--before", "x#1"], "nobody"),
        (["resolve", "nobody", "x", "1"], "nobody"),
        (["send", "nobody", "1"], "nobody"),
        (["restore", "nothing.db"], "nothing.db"),
        (["backup", "no/such/folder/x.db"], "no/such/folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_an_error_is_one_line_that_names_the_trouble(shell, arguments, said):
    shell("db", "upgrade")
    assert said in shell.refused(*arguments)


def test_a_process_exits_with_1_on_errors_and_with_2_on_bad_usage(shell):
    shell("db", "upgrade")
    for arguments, code in ((("show", "nobody"), 1), (("runs", "--status", "asleep"), 2)):
        refused(arguments, shell.run_process(*arguments), code)


@pytest.mark.parametrize(
    ("target", "said"), [("agnet:app", "no module 'agnet'"), ("agent:memory", "use a file")]
)
def test_serve_gives_up_when_its_workers_cannot_start(shell, target, said):
    done = shell.run_process("serve", target)
    assert done.code == 1 and done.out == "" and "Traceback" not in done.err
    assert said in next(line for line in done.err.splitlines() if line.startswith("holdfast: "))


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["runs", "--status", "asleep"],
        ["runs", "--limit", "0"],
        ["serve", "agent:app", "--workers", "0"],
        ["resolve", "r1", "x"],
        ["resolve", "r1", "x", "1", "--approve"],
        ["resolve", "r1", "x", "1", "--by", "ann"],
        ["resolve", "r1", "x", "not json"],
        ["send", "r1", "{"],
        ["start", "agent:app", "essay", "oaks"],
        ["start", "agent:app", "essay", "--kwargs", "[1]"],
        ["fork", "e1"],
    ],
    ids=" ".join,
)
def test_bad_usage_exits_with_2(shell, arguments):
    shell("db", "upgrade")
    shell.refused(*arguments, code=2)


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs"],
        ["show", "x"],
        ["why", "x"],
        ["workers"],
        ["db", "check"],
        ["backup", "copy.db"],
        ["cancel", "x"],
    ],
    ids=" ".join,
)
def test_a_missing_store_is_named_and_not_created(shell, arguments):
    before = sorted(path.name for path in shell.folder.iterdir())
    assert "there is no store" in shell.refused(*arguments)
    assert sorted(path.name for path in shell.folder.iterdir()) == before


def test_a_module_that_fails_shows_where(shell):
    (shell.folder / "bad.py").write_text("def f():\n    raise RuntimeError('no key')\nf()\n")
    done = shell.run("worker", "bad:app")
    assert done.code == 1
    assert 'bad.py", line 2' in done.err
    last = done.err.splitlines()[-1]
    assert last == "holdfast: importing 'bad' failed with RuntimeError: no key"


def test_a_module_that_misses_another_names_that_one(shell):
    (shell.folder / "bad.py").write_text("import nowhere_to_be_found\n")
    done = shell.run("worker", "bad:app")
    assert "needs a module that is missing: No module named 'nowhere_to_be_found'" in done.err


def test_a_file_of_another_program_is_left_alone(shell):
    (shell.folder / "other.db").write_text("this is not a database, but a diary")
    said = shell.refused("runs", "--db", "sqlite:///other.db")
    assert "not a SQLite database" in said
    assert (shell.folder / "other.db").read_text() == "this is not a database, but a diary"


def test_the_store_is_chosen_by_option_then_app_then_environment_then_default(shell, monkeypatch):
    def runs(*options: str) -> list[str]:
        return [row["id"] for row in json.loads(shell("runs", "--json", *options))]

    (shell.folder / "env.py").write_text(
        (shell.folder / "agent.py").read_text().replace("agent.db", "env.db")
    )
    (shell.folder / "here.py").write_text(
        (shell.folder / "agent.py").read_text().replace("agent.db", "holdfast.db")
    )
    shell("start", "agent:app", "naps", "1", "--id", "of-agent")
    shell("start", "env:app", "naps", "1", "--id", "of-env")
    shell("start", "here:app", "naps", "1", "--id", "of-default")
    monkeypatch.delenv("HOLDFAST_DB")
    assert runs() == ["of-default"]
    monkeypatch.setenv("HOLDFAST_DB", "sqlite:///env.db")
    assert runs() == ["of-env"]
    assert runs("--app", "agent:app") == ["of-agent"]
    assert runs("--app", "agent:app", "--db", "sqlite:///holdfast.db") == ["of-default"]
