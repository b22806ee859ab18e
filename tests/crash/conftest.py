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
from tests.helpers.emptied import EmptiedStores


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
async def url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A store that holds nothing."""
    if kind == "postgres":
        stores: EmptiedStores = request.getfixturevalue("emptied_stores")
        return await stores.take()
    made = f"sqlite:///{tmp_path}/crash.db"
    await upgrade(made)
    return made


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
