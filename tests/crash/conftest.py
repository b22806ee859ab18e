"""An observer, a fleet of workers and a client on one store: each test runs on both kinds.

What only one of them can show is in a folder of its own, sqlite/ or postgres/.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import holdfast
from holdfast.store import upgrade
from tests.crash.agent import client
from tests.crash.fleet import Fleet, Observer


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that may not exist yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/crash.db"
    made: str = request.getfixturevalue("postgres_url")
    return made


@pytest.fixture
async def url(store_url: str) -> str:
    await upgrade(store_url)
    return store_url


@pytest.fixture
async def observer() -> AsyncIterator[Observer]:
    async with Observer() as made:
        yield made


@pytest.fixture
async def app(url: str) -> AsyncIterator[holdfast.Holdfast]:
    async with client(url) as made:
        yield made


@pytest.fixture
async def fleet(app: holdfast.Holdfast, url: str, observer: Observer) -> AsyncIterator[Fleet]:
    async with Fleet(url, observer) as made:
        yield made
