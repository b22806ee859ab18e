"""An observer, a fleet of workers and a client on one database file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import holdfast
from tests.crash.agent import client
from tests.crash.fleet import Fleet, Observer


@pytest.fixture
async def observer() -> AsyncIterator[Observer]:
    async with Observer() as made:
        yield made


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[holdfast.Holdfast]:
    async with client(tmp_path / "crash.db") as made:
        yield made


@pytest.fixture
async def fleet(app: holdfast.Holdfast, tmp_path: Path, observer: Observer) -> AsyncIterator[Fleet]:
    async with Fleet(tmp_path / "crash.db", observer) as made:
        yield made
