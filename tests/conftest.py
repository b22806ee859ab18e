"""A PostgreSQL server for all tests that want one, and a schema of its own for each.

Several processes that share the tests have a server each.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from holdfast.testing import Environment
from holdfast.testing.postgres import PostgresServer

if TYPE_CHECKING:
    from tests.helpers.emptied import EmptiedStores

_numbers = itertools.count()

# The same examples every time, however slow the machine: what fails here fails everywhere.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")

# As long as a test may take at all: a busy machine is no error.
(Environment.__init__.__kwdefaults__ or {})["patience"] = timedelta(minutes=10)


def pytest_collection_finish() -> None:
    """What there is by now stays: tests that collect garbage need not look at it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer(fsync=False) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """A store that does not exist yet."""
    return f"{postgres.dsn}?schema=test_{next(_numbers)}"


@pytest.fixture(scope="session")
def _emptied_stores(postgres: PostgresServer) -> EmptiedStores:
    # With a driver that the environments of the frameworks do without.
    from tests.helpers.emptied import EmptiedStores

    return EmptiedStores(postgres)


@pytest.fixture
def emptied_stores(_emptied_stores: EmptiedStores) -> Iterator[EmptiedStores]:
    """Stores that exist and hold nothing."""
    yield _emptied_stores
    _emptied_stores.give_back()
