"""A PostgreSQL server for all tests that want one, and a schema of its own for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from holdfast.testing.postgres import PostgresServer

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer(fsync=False) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """A store that does not exist yet."""
    return f"{postgres.dsn}?schema=test_{next(_numbers)}"
