"""Reads of time, chance and environment in workflows are pointed out, with file and line."""

from __future__ import annotations

import os
import random
import sys
import time
import types
import uuid
import warnings
from datetime import datetime
from importlib.abc import InspectLoader
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.engine.lint import warn_of_undurable_reads


@holdfast.step
async def in_a_step() -> float:
    return time.time()


def helper() -> float:
    return random.random()


@holdfast.workflow
async def undurable() -> list[Any]:
    return [time.time(), uuid.uuid4(), os.environ["HOME"], datetime.now(), helper()]


@holdfast.workflow
async def durable() -> list[Any]:
    return [holdfast.now(), holdfast.random(), holdfast.uuid4(), await in_a_step()]


def found(workflow: holdfast.Workflow[Any, Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_undurable_reads(workflow.fn)
    return caught


def test_each_undurable_read_is_named_with_its_cure() -> None:
    texts = [str(w.message) for w in found(undurable)]
    reads = {text.partition(" ")[0] for text in texts}
    assert reads == {
        "time.time",
        "uuid.uuid4",
        "os.environ",
        "datetime.datetime.now",
        "random.random",
    }
    assert any("use holdfast.now()" in text for text in texts)


def test_the_warning_points_at_the_line() -> None:
    lines = Path(__file__).read_text().splitlines()
    for warning in found(undurable):
        read = str(warning.message).partition(" ")[0].rpartition(".")[2]
        assert warning.filename == __file__
        assert read in lines[warning.lineno - 1]


def test_steps_and_holdfasts_own_values_are_left_alone() -> None:
    assert found(durable) == []


async def test_starting_such_a_workflow_warns_once() -> None:
    async with holdfast.Holdfast("sqlite://:memory:", workflows=[warned]) as app:
        with pytest.warns(holdfast.ReplayWarning, match=r"time\.time"):
            await (await app.start(warned)).result()
        await (await app.start(warned)).result()  # warnings are errors here: a second would raise


@holdfast.workflow
async def warned() -> float:
    return time.time()


class OddLoader(InspectLoader):
    """Of a module whose source is nowhere on disk."""

    def __init__(self, source: str | Exception) -> None:
        self._source = source

    def get_source(self, fullname: str) -> str:
        if isinstance(self._source, Exception):
            raise self._source
        return self._source


TOO_DEEP = "async def odd(): return " + "-" * 200_000 + "1"


@pytest.mark.parametrize(
    "source",
    [SystemError("unknown opcode"), ValueError("zip damaged"), KeyError("x"), TOO_DEEP],
    ids=["SystemError", "ValueError", "KeyError", "too deep"],
)
async def test_source_that_cannot_be_had_or_parsed_breaks_no_run(
    source: str | Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = types.ModuleType(f"odd_{tmp_path.name}")
    module.__loader__ = OddLoader(source)
    module.__file__ = str(tmp_path / "odd.py")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile("async def odd(): return 1", module.__file__, "exec"), vars(module))
    odd = holdfast.workflow(vars(module)["odd"])
    async with holdfast.Holdfast("sqlite://:memory:", workflows=[odd]) as app:
        assert await (await app.start(odd)).result() == 1
