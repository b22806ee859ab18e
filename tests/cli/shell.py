"""A user's module, and a shell to run commands beside it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.cli import main
from tests.helpers.processes import Observer, holdfast

URL = "sqlite:///agent.db"

AGENT = (
    Observer.CODE
    + """
import asyncio
from dataclasses import dataclass
from datetime import date, timedelta

import holdfast
from holdfast.engine.context import scope

@dataclass
class Order:
    item: str
    due: date | None = None

@holdfast.step
async def look_up(what: str) -> str:
    report(f"look_up {what}")
    return f"notes on {what}"

@holdfast.step
async def write(notes: str) -> str:
    report("write")
    return f"an essay from {notes}"

@holdfast.workflow
async def essay(topic: str, *, length: int = 1) -> str:
    notes = await look_up(topic)
    return await write(notes) * length

@holdfast.workflow
async def release(what: str) -> str:
    decision = await holdfast.approval("release", f"Release {what}?")
    return f"{decision.approved} {decision.by} {decision.comment}"

@holdfast.workflow
async def ask(name: str) -> int:
    return 2 * await holdfast.promise(name, int)

@holdfast.workflow
async def listen(channel: str) -> list[str]:
    return [await holdfast.receive(channel=channel), await holdfast.receive(channel=channel)]

@holdfast.workflow
async def order(first: Order) -> str:
    await look_up("orders")
    second = await holdfast.promise("second", Order)
    third = await holdfast.receive(Order)
    return f"{first} {second} {third}"

@holdfast.step(retry=holdfast.Retry(attempts=1))
async def fragile() -> str:
    report("fragile")
    if os.path.exists("broken"):
        raise ValueError("it is \\x1b[31mbroken")
    return "whole"

@holdfast.workflow
async def breaks() -> str:
    await look_up("first")
    return await fragile()

@holdfast.workflow
async def naps(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"

@holdfast.workflow
async def pauses() -> str:
    await look_up("before")
    await held_step()
    await look_up("after")
    return "done"

@holdfast.step
async def held_step() -> None:
    await held("gate")
    while os.path.exists("pausing") and not scope().frame.run.pausing:
        await asyncio.sleep(0.01)

app = holdfast.Holdfast(
    "sqlite:///agent.db",
    workflows=[essay, release, ask, listen, order, breaks, naps, pauses],
    worker_options=holdfast.WorkerOptions(memory_wait=timedelta(0)),
)
memory = holdfast.Holdfast("sqlite://:memory:", workflows=[essay])
empty = holdfast.Holdfast("sqlite:///agent.db")
not_an_app = 7
"""
)


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """Commands in a directory with a user's module, agent.py; the store is named by HOLDFAST_DB.

    Called, it runs a command inside this process, which is quick. `process` and `work` start real
    ones, by the console's own entry.
    """

    def __init__(self, folder: Path, capsys, monkeypatch) -> None:
        self.folder = folder
        self.observer = Observer(folder)
        self.db = folder / "agent.db"
        self.url = URL
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        (folder / "agent.py").write_text(AGENT, "utf-8")

    def run(self, *arguments: str) -> Done:
        self._monkeypatch.setattr(sys, "argv", ["holdfast", *arguments])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        return Done(int(left.value.code or 0), *self._capsys.readouterr())

    def __call__(self, *arguments: str) -> str:
        """What a command prints; it must succeed."""
        return succeeded(arguments, self.run(*arguments))

    def run_process(self, *arguments: str, **env: str) -> Done:
        env.setdefault("HOLDFAST_DB", self.url)
        done = holdfast(*arguments, cwd=self.folder, **env)
        return Done(done.returncode, done.stdout, done.stderr)

    def process(self, *arguments: str, **env: str) -> str:
        return succeeded(arguments, self.run_process(*arguments, **env))

    def work(self, *options: str) -> None:
        """Does all there is to do."""
        self.process("worker", "agent:app", "--until-idle", *options)

    def refused(self, *arguments: str, code: int = 1) -> str:
        """What a command that fails says; nothing but one line if Holdfast names the error."""
        return refused(arguments, self.run(*arguments), code)


def succeeded(arguments: tuple[str, ...], done: Done) -> str:
    assert done.code == 0, f"{arguments}\n{done.out}\n{done.err}"
    return done.out


def refused(arguments: tuple[str, ...], done: Done, code: int = 1) -> str:
    assert done.code == code, f"{arguments}\n{done.out}\n{done.err}"
    assert done.out == "" and "Traceback" not in done.err
    if code == 1:
        assert len(done.err.splitlines()) == 1 and done.err.startswith("holdfast: "), done.err
    return done.err
