"""What each command does, with a user's module in the current directory.

The command that a test is about runs in a real process at least once; what prepares it does not.
"""

from __future__ import annotations

import json
import sqlite3
from datetime import timedelta

from tests.helpers.processes import SECONDS_MAX, seen, spawned


def show(shell, run: str) -> dict:
    return json.loads(shell("show", run, "--json"))


def keys(shown: dict) -> list[str]:
    return [entry["key"] for entry in shown["journal"] if entry["kind"] == "step"]


# Start, worker, runs, show, why


def test_a_started_run_is_executed_by_a_worker_and_shown(shell):
    assert shell.process("start", "agent:app", "essay", '"oaks"', "--id", "e1") == "e1\n"
    shell.work()
    shown = show(shell, "e1")
    assert shown["status"] == "completed"
    assert shown["output"] == "an essay from notes on oaks"
    steps = [entry for entry in shown["journal"] if entry["kind"] == "step"]
    assert [entry["output"] for entry in steps] == ["notes on oaks", "an essay from notes on oaks"]
    assert all(entry["started_at"] <= entry["at"] for entry in steps)
    text = shell.process("show", "e1")
    assert all(entry["key"] in text for entry in steps)
    assert "completed" in text and "notes on oaks" in text


def test_keyword_arguments_are_given_as_an_object(shell):
    shell("start", "agent:app", "essay", '"oaks"', "--kwargs", '{"length": 2}', "--id", "e1")
    shell.work()
    assert show(shell, "e1")["output"] == "an essay from notes on oaks" * 2


def test_the_same_id_is_the_same_run(shell):
    assert shell("start", "agent:app", "essay", '"oaks"', "--id", "e1") == "e1\n"
    assert shell("start", "agent:app", "essay", '"oaks"', "--id", "e1") == "e1\n"
    assert len(json.loads(shell("runs", "--json"))) == 1
    assert "other arguments" in shell.refused("start", "agent:app", "essay", '"elms"', "--id", "e1")


def test_runs_are_listed_newest_first_and_filtered(shell):
    shell("start", "agent:app", "essay", '"oaks"', "--id", "e1")
    shell("start", "agent:app", "release", '"oaks"', "--id", "r1", "--session", "user-42")
    shell.work()

    def listed(*options: str) -> list[str]:
        return [row["id"] for row in json.loads(shell("runs", "--json", *options))]

    assert listed() == ["r1", "e1"]
    assert listed("--limit", "1") == ["r1"]
    assert listed("--status", "completed") == ["e1"]
    assert listed("--status", "completed", "--status", "waiting") == ["r1", "e1"]
    assert listed("--workflow", "release") == ["r1"]
    assert listed("--session", "user-42") == ["r1"]
    lines = shell.process("runs").splitlines()
    assert lines[0].split() == ["id", "workflow", "status", "started", "session", "remark"]
    assert [line.split()[0] for line in lines[1:]] == ["r1", "e1"]
    assert shell("runs", "--workflow", "nothing") == "no runs\n"


def test_output_without_a_terminal_has_no_escape_codes(shell):
    (shell.folder / "broken").touch()
    shell("start", "agent:app", "breaks", "--id", "b1")
    shell.work()
    for arguments in (["runs"], ["show", "b1"], ["why", "b1"], ["runs", "--json"]):
        assert "\x1b" not in shell.process(*arguments)
    assert "\\x1b[31mbroken" in shell("show", "b1")


def test_why_names_the_command_that_unblocks(shell):
    shell("start", "agent:app", "release", '"it"', "--id", "r1")
    assert "no worker is alive" in shell("why", "r1")
    assert "`holdfast worker module:app`" in shell("why", "r1")
    shell.work()
    assert "`holdfast resolve r1 release --approve`" in shell.process("why", "r1")


def test_why_sees_that_the_worker_died(shell):
    shell.observer.close_gate("gate")
    shell("start", "agent:app", "pauses", "--id", "p1")
    with spawned("worker", "agent:app", cwd=shell.folder) as worker:
        shell.observer.await_arrival("gate")
        assert f"(pid {worker.pid})" in shell("why", "p1")
        worker.end()
    assert "is gone, and no other is alive" in shell("why", "p1")
    assert "`holdfast worker module:app`" in shell("why", "p1")


def test_a_long_journal_is_cut_and_says_so(shell):
    shell("start", "agent:app", "essay", '"oaks"', "--id", "e1")
    shell.work()
    text = shell("show", "e1", "--limit", "1")
    assert "earlier entries" in text and "look_up" not in text
    assert "look_up" in shell("show", "e1", "--limit", "0")


# Waiting runs


def test_an_approval_is_given_by_name(shell):
    shell("start", "agent:app", "release", '"it"', "--id", "r1")
    shell.work()
    assert "Release it?" in shell("show", "r1")
    shell.process("resolve", "r1", "release", "--approve", "--by", "ann", "--comment", "go")
    shell.work()
    assert show(shell, "r1")["output"] == "True ann go"


def test_an_approval_is_declined(shell):
    shell("start", "agent:app", "release", '"it"', "--id", "r1")
    shell("resolve", "r1", "release", "--decline", "--early")
    shell.work()
    assert show(shell, "r1")["output"] == "False None None"


def test_a_promise_is_answered_with_json(shell):
    shell("start", "agent:app", "ask", '"number"', "--id", "a1")
    shell.work()
    shell("resolve", "a1", "number", "21")
    shell.work()
    assert show(shell, "a1")["output"] == 42


def test_an_answer_of_the_wrong_type_or_a_second_one_is_refused(shell):
    shell("start", "agent:app", "ask", '"number"', "--id", "a1")
    shell.work()
    assert "number" in shell.refused("resolve", "a1", "number", '"many"')
    assert "--early" in shell.refused("resolve", "a1", "nmuber", "21")
    shell("resolve", "a1", "number", "21")
    assert "a1" in shell.refused("resolve", "a1", "number", "22")
    shell.work()
    assert show(shell, "a1")["output"] == 42


def test_typed_arguments_answers_and_messages_are_plain_json(shell):
    assert "lacks the field 'item'" in shell.refused("start", "agent:app", "order", "{}")
    shell("start", "agent:app", "order", '{"item": "a"}', "--id", "o1")
    shell.work()
    assert "agent:Order (item, due?)" in shell("show", "o1")
    assert "'<an agent:Order (item, due?) as JSON>'" in shell("why", "o1")
    said = shell.refused("resolve", "o1", "second", '{"item": "b", "due": "soon"}')
    assert 'the value.due is "soon", awaited is a date such as' in said
    shell.process("resolve", "o1", "second", '{"item": "b", "due": "2026-01-31"}')
    shell("send", "o1", '{"item": "c"}')
    shell.work()
    assert show(shell, "o1")["output"] == (
        "Order(item='a', due=None) Order(item='b', due=datetime.date(2026, 1, 31))"
        " Order(item='c', due=None)"
    )


def test_an_early_answer_that_does_not_fit_leaves_the_promise_open(shell):
    shell("start", "agent:app", "order", '{"item": "a"}', "--id", "o1")
    said = shell("resolve", "o1", "second", "3")
    assert "the answer to second is stored: run o1 has not asked for it yet" in said
    shell.work()
    assert "An answer was refused" in shell("why", "o1")
    assert "is answered" in shell("resolve", "o1", "second", '{"item": "b"}')


def test_a_mistyped_name_is_told_from_an_early_answer(shell):
    shell("start", "agent:app", "release", '"it"', "--id", "r1")
    shell.work()
    assert "open are: 'release'" in shell.refused("resolve", "r1", "relaese", "--approve")
    said = shell("resolve", "r1", "relaese", "--approve", "--early")
    assert "run r1 has not asked for it yet; open are: 'release'" in said
    assert "an answer to 'relaese', which it has not asked for yet" in shell("why", "r1")


def test_messages_arrive_in_order(shell):
    shell("start", "agent:app", "listen", '"news"', "--id", "l1")
    shell("send", "l1", '"one"', "--channel", "news")
    shell.process("send", "l1", '"two"', "--channel", "news")
    shell.work()
    assert show(shell, "l1")["output"] == ["one", "two"]


# Control


def test_a_cancelled_run_ends_and_cannot_be_cancelled_again(shell):
    shell("start", "agent:app", "release", '"it"', "--id", "r1")
    shell.work()
    shell.process("cancel", "r1")
    shell.work()
    assert show(shell, "r1")["status"] == "cancelled"
    assert "ended" in shell.refused("cancel", "r1")


def test_a_run_pauses_before_its_next_step_and_resumes(shell):
    shell.observer.close_gate("gate")
    shell("start", "agent:app", "pauses", "--id", "p1")
    with spawned("worker", "agent:app", "--until-idle", cwd=shell.folder) as worker:
        shell.observer.await_arrival("gate")
        (shell.folder / "pausing").touch()  # the step stays until its worker has heard of it
        shell.process("pause", "p1")
        shell.observer.open_gate("gate")
        assert worker.wait() == 0
    assert show(shell, "p1")["status"] == "paused"
    assert shell.observer.effects() == {"look_up before": 1}
    assert "`holdfast resume p1`" in shell("why", "p1")
    shell.process("resume", "p1")
    shell.work()
    assert show(shell, "p1")["output"] == "done"
    assert shell.observer.effects() == {"look_up before": 1, "look_up after": 1}


def test_a_failed_run_goes_on_from_the_failed_step(shell):
    (shell.folder / "broken").touch()
    shell("start", "agent:app", "breaks", "--id", "b1")
    shell.work()
    assert "ValueError" in shell("runs") and "`holdfast rerun b1`" in shell("why", "b1")
    (shell.folder / "broken").unlink()
    shell.process("rerun", "b1")
    shell.work()
    assert show(shell, "b1")["output"] == "whole"
    assert shell.observer.effects() == {"look_up first": 1, "fragile": 2}


def test_a_fork_repeats_only_what_comes_from_its_step_on(shell):
    shell("start", "agent:app", "essay", '"oaks"', "--id", "e1")
    shell.work()
    second = keys(show(shell, "e1"))[1]
    assert shell.process("fork", "e1", "--before", second, "--id", "e2") == "e2\n"
    shell.work()
    assert show(shell, "e2")["output"] == show(shell, "e1")["output"]
    assert shell.observer.effects() == {"look_up oaks": 1, "write": 2}
    assert "exists already" in shell.refused("fork", "e1", "--before", second, "--id", "e2")


# Workers


def test_workers_are_listed_while_they_live(shell):
    shell("db", "upgrade")
    assert "no workers" in shell("workers")
    with spawned("worker", "agent:app", cwd=shell.folder) as worker, seen(shell.db) as store:
        assert store.await_workers(1) == {worker.pid}
        listed = json.loads(shell("workers", "--json"))
        assert [(row["pid"], row["health"]) for row in listed] == [(worker.pid, "alive")]
        assert str(worker.pid) in shell.process("workers")
        worker.end()
        # Nobody is left to reap it.
        assert [row["health"] for row in json.loads(shell("workers", "--json"))] == ["dead"]


def test_until_idle_waits_for_timers_only_if_told_to(shell):
    shell("start", "agent:app", "naps", "0.5", "--id", "n1")
    shell("start", "agent:app", "naps", "3600", "--id", "n2")
    shell.work("--wait-timers", str(SECONDS_MAX))
    assert show(shell, "n1")["output"] == "rested"
    assert show(shell, "n2")["status"] == "waiting"
    shell("start", "agent:app", "naps", "3600", "--id", "n3")
    shell.work()
    assert show(shell, "n3")["status"] == "waiting"


def test_a_worker_fixes_the_hash_seed_and_keeps_one_that_is_given(shell):
    code = "import os, sys; print('seed', os.environ.get('PYTHONHASHSEED'), file=sys.stderr)\n"
    path = shell.folder / "agent.py"
    path.write_text(code + path.read_text("utf-8"), "utf-8")
    shell("db", "upgrade")
    done = shell.run_process("worker", "agent:app", "--until-idle", PYTHONHASHSEED="random")
    assert "seed 0\n" in done.err and "seed random" not in done.err
    done = shell.run_process("worker", "agent:app", "--until-idle", PYTHONHASHSEED="7")
    assert "seed 7\n" in done.err and "seed 0" not in done.err


def test_serve_tells_its_workers_the_grace_time(shell, monkeypatch):
    made: list[tuple] = []

    class Noting:
        def __init__(self, arguments, *, workers, grace):
            made.append((arguments, workers, grace))

        async def run(self):
            return 0

    monkeypatch.setattr("holdfast.cli.serve.Supervisor", Noting)
    shell("serve", "agent:app", "--workers", "2", "--grace", "0.2")
    assert made == [(["agent:app", "--grace", "0.2"], 2, timedelta(seconds=0.2))]


def test_a_worker_runs_on_uvloop(shell):
    shell("start", "agent:app", "essay", '"oaks"', "--id", "e1")
    shell.work("--uvloop")
    assert show(shell, "e1")["status"] == "completed"


# The store


def test_a_backup_is_restored(shell):
    shell("start", "agent:app", "essay", '"oaks"', "--id", "e1")
    shell.work()
    shell.process("backup", "copy.db")
    assert "exists" in shell.refused("backup", "copy.db")
    shell("start", "agent:app", "essay", '"elms"', "--id", "e2")
    assert "--force" in shell.refused("restore", "copy.db")
    shell.process("restore", "copy.db", "--force")
    assert [row["id"] for row in json.loads(shell("runs", "--json"))] == ["e1"]
    shell("restore", "copy.db", "--db", "sqlite:///other.db")
    assert [row["id"] for row in json.loads(shell("runs", "--json", "--db", "other.db"))] == ["e1"]


def test_a_store_in_use_is_not_replaced(shell):
    shell("db", "upgrade")
    shell("backup", "copy.db")
    with spawned("worker", "agent:app", cwd=shell.folder), seen(shell.db) as store:
        store.await_workers(1)
        assert "in use" in shell.refused("restore", "copy.db", "--force")


def test_the_schema_is_upgraded_once_or_printed(shell):
    script = shell.process("db", "upgrade", "--sql")
    assert "CREATE TABLE runs" in script and not shell.db.exists()
    assert "was upgraded" in shell.process("db", "upgrade")
    assert "is up to date" in shell("db", "upgrade")
    assert "up to date" in shell("db", "upgrade", "--sql")
    assert "is sound" in shell.process("db", "check")


def test_a_script_applied_by_hand_gives_a_store(shell):
    db = sqlite3.connect(shell.db)
    db.executescript(shell("db", "upgrade", "--sql"))
    db.close()
    assert "up to date" in shell("db", "upgrade", "--sql")
    shell("start", "agent:app", "essay", '"oaks"', "--id", "e1")
    shell.work()
    assert show(shell, "e1")["status"] == "completed"
