"""What the MCP server of the tests was asked for, and by whom."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing.model_server import Reply, Script
from tests.adapters.harness import World, Zygote, check_every_kill

COMMAND = sys.executable
SERVER = [str(Path(__file__).with_name("mcp_server.py"))]
BY_SDK = [*SERVER, "sdk"]

SOON = holdfast.Retry(attempts=3, backoff=timedelta(0))
ONCE = holdfast.Retry(attempts=1)
EVERY = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.full)])

PARALLEL = [
    Reply(tool_calls=[("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})]),
    Reply(tool_calls=[("add", {"a": 5, "b": 6})]),
    Reply(text="Added."),
]
ONE_BY_ONE = [
    Reply(tool_calls=[("add", {"a": 1, "b": 2})]),
    Reply(tool_calls=[("add", {"a": 3, "b": 4})]),
    Reply(text="Added."),
]
FRAGILE = [
    Reply(tool_calls=[("add", {"a": 1, "b": 2})]),
    Reply(tool_calls=[("fragile", {"a": 7})]),
    Reply(tool_calls=[("add", {"a": 3, "b": 4})]),
    Reply(text="Added."),
]


def environment(folder: str | Path) -> dict[str, str]:
    return {**os.environ, "MCP_FOLDER": str(folder)}


async def added(workflow: Any, *arguments: Any, runs: int = 1) -> set[str]:
    """Runs it, and again; the keys of the last run."""
    async with holdfast.Holdfast(":memory:", workflows=[workflow]) as app:
        for _ in range(runs):
            run: Any = await app.start(workflow, *arguments)
            assert await asyncio.wait_for(run.result(), 120) == "Added."
        return {entry.key for entry in await app.history(run.id)}


class Noted:
    def __init__(self, folder: str | Path) -> None:
        path = Path(folder) / "noted"
        text = path.read_text() if path.exists() else ""
        self._lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]

    def _all(self, what: str) -> list[dict[str, Any]]:
        return [line for line in self._lines if line["what"] == what]

    @property
    def sessions(self) -> int:
        return len(self._all("started"))

    @property
    def refused(self) -> int:
        return len(self._all("refused"))

    @property
    def calls(self) -> list[list[int]]:
        return [line["about"] for line in self._all("called")]

    @property
    def calls_by_session(self) -> list[int]:
        """Of those in which there were any."""
        return list(Counter(line["server"] for line in self._all("called")).values())

    @property
    def listings(self) -> int:
        return len(self._all("listed"))

    def check_needed(self, calls: int) -> None:
        """A process that goes on after the last call needs no server."""
        agents = dict.fromkeys(line["agent"] for line in self._lines)
        called = Counter(line["agent"] for line in self._all("called"))
        if called[next(iter(agents))] == calls:
            assert len(agents) == 1, self._lines

    def check_one_for_each_process(self, *, opens_at_start: bool = False) -> None:
        """Every process of the agent that had to ask has one session, and no other has any.
        opens_at_start: so does the framework, to list tools, before there is a run."""
        called = {(line["agent"], line["server"]) for line in self._all("called")}
        assert len({agent for agent, _ in called}) == len(called), self._lines
        if not opens_at_start:
            asked = called | {(line["agent"], line["server"]) for line in self._all("listed")}
            assert len({agent for agent, _ in asked}) == len(asked), self._lines
            assert self.sessions == len(asked), self._lines


def check_each_run_had_one(folder: Path, told: Any, *, others: int = 0) -> None:
    """After two runs of PARALLEL. others: sessions in which nothing is called."""
    noted = Noted(folder)
    assert noted.calls_by_session == [3, 3]
    assert noted.sessions == 2 + others
    assert all(re.search(rf"'{n}'|\"result\": {n}\b", str(told)) for n in (3, 7, 11)), told


def refuse_once(folder: Path) -> None:
    (folder / "refuses").write_text("1")


def check_opened_anew(folder: Path, *, refused: int = 1) -> None:
    """After FRAGILE: each call was made once, the second session began when the first was lost."""
    noted = Noted(folder)
    assert noted.refused == refused
    assert noted.calls == [[1, 2], [7], [3, 4]]
    assert noted.calls_by_session == [1, 2]


def check_sessions(
    zygote: Zygote,
    case: str,
    script: Script = ONE_BY_ONE,
    *,
    every: int = 1,
    opens_at_start: bool = False,
    lists_each_turn: bool = False,
) -> None:
    """Kills the agent after each commit; meanwhile the server gets another tool. Each call is made
    once, in one session for each process that had to make any; what is on record is not asked for
    again, not even what tools there are."""

    def check(world: World) -> None:
        noted = Noted(world.folder)
        assert noted.calls == [[1, 2], [3, 4]]
        noted.check_one_for_each_process(opens_at_start=opens_at_start)
        if not opens_at_start and not lists_each_turn:
            noted.check_needed(2)

    def change(world: World) -> None:
        (Path(world.folder) / "changed").touch()

    check_every_kill(zygote, case, script, every=every, killed=change, check=check)
