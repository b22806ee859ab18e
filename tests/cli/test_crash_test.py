"""`holdfast crash-test`: kills an agent without Holdfast and with it, and tells the damage."""

from __future__ import annotations

import io
import json
import sys

import pytest

from holdfast.testing.model_server import ModelServer, Reply

AGENT = """
import asyncio
import os

import httpx

import holdfast

@holdfast.step
async def ask(question: str) -> str:
    async with httpx.AsyncClient(timeout=120) as http:
        body = {"model": "m", "messages": [{"role": "user", "content": question}]}
        answer = await http.post(os.environ["MODEL"] + "/chat/completions", json=body)
        return answer.json()["choices"][0]["message"]["content"]

@holdfast.step
def send_mail(text: str) -> None:
    with open("mails", "a") as mails:
        mails.write(text + "\\n")

@holdfast.workflow
async def report(question: str) -> str:
    first = await ask(question)
    await asyncio.to_thread(send_mail, first)
    second = await ask(f"more on {first}")
    await asyncio.to_thread(send_mail, second)
    return second
"""
BESIDE = """
@holdfast.workflow
async def waits(question: str) -> str:
    return await ask(question) + await holdfast.promise("answer", str)

@holdfast.workflow
async def fails(question: str) -> str:
    raise ValueError(f"cannot {question}")

@holdfast.workflow
async def thinks(question: str) -> str:
    return question
"""


@pytest.fixture
def model(monkeypatch):
    with ModelServer([Reply(text="owls"), Reply(text="more owls")]) as server:
        monkeypatch.setenv("MODEL", server.url)
        yield server


def test_without_holdfast_everything_before_a_kill_is_repeated_and_with_it_nothing(
    shell, model, tmp_path
):
    (tmp_path / "my_agent.py").write_text(AGENT)
    told = json.loads(shell("crash-test", "my_agent.py", "owls?", "--yes", "--json"))
    # Killed after each of four calls: 1 + 2 + 3 + 4 were in vain.
    assert told["models"] == 2 and told["effects"] == ["send_mail"]
    without, durable = told["without"], told["durable"]
    assert (without["kills"], without["finished"]) == (4, 4)
    assert (without["models_repeated"], without["effects_repeated"]) == (6, 4)
    assert without["tokens_lost"] > 0
    assert durable["kills"] == durable["finished"] >= 4
    assert (durable["models_repeated"], durable["effects_repeated"]) == (0, 0)
    assert told["holds"]
    assert len(model.requests) == 2  # the model was asked in the first life only
    mails = (tmp_path / "mails").read_text().splitlines()
    lives = 1 + 1 + without["kills"] + durable["kills"]
    assert len(mails) == 2 * lives + without["effects_repeated"]


def test_what_it_costs_is_shown_as_a_table(shell, model, tmp_path):
    (tmp_path / "my_agent.py").write_text(AGENT)
    shown = shell("crash-test", "my_agent.py:report", "owls?", "--yes", "--every", "3")
    assert "effects: send_mail" in shown
    assert "with Holdfast" in shown and "calls of models repeated" in shown


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nothing.py", "there is no file"),
        ("my_agent.py", "say my_agent.py:report or my_agent.py:waits"),
        ("my_agent.py:agnet", "has no 'agnet'"),
        ("my_agent.py:os", "neither an agent nor a function"),
        ("my_agent.py:waits", "holdfast resolve crash-test answer"),
        ("my_agent.py:fails", "cannot owls?"),
        ("my_agent.py:thinks", "did nothing that can be seen"),
    ],
)
def test_what_cannot_be_tested_is_named(shell, model, tmp_path, target, said):
    (tmp_path / "my_agent.py").write_text(AGENT + BESIDE)
    assert said in shell.refused("crash-test", target, "owls?", "--yes")


def test_nothing_is_executed_before_somebody_agrees(shell, model, tmp_path, monkeypatch):
    (tmp_path / "my_agent.py").write_text(AGENT)
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert "executed for real" in shell.run("crash-test", "my_agent.py", "owls?").err
    assert not (tmp_path / "mails").exists() and not model.requests
