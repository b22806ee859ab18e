"""What every test of the engine is held to, and the stores it runs on."""

from __future__ import annotations

import functools
import gc
import inspect
import logging
from collections.abc import Iterator

import pytest

from holdfast.testing.kept_store import KeptStore
from tests.helpers.emptied import EmptiedStores

BOTH_STORES = {
    "test_answers",
    "test_children",
    "test_children_again",
    "test_joining",
    "test_odd_ids",
    "test_out_of_tries",
    "test_released_sessions",
    "test_session_children",
    "test_session_values",
    "test_sessions",
    "test_suspension",
    "test_waits",
}
"""Modules whose tests run on PostgreSQL, too, as far as they open an Environment of their own: the
engine's part that asks most of a store."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.path.stem not in BOTH_STORES:
        return
    if "Environment(" in inspect.getsource(metafunc.function):
        metafunc.parametrize("kept_in", ["memory", "postgres"], indirect=True)


class OnPostgres(KeptStore):
    def __init__(self, stores: EmptiedStores) -> None:
        self.url = ""
        self._stores = stores

    async def open(self) -> None:
        if not self.url:
            super().__init__(await self._stores.take())
        await super().open()


@pytest.fixture(autouse=True)
def kept_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where an Environment keeps its runs if it is not told: each has a place of its own."""
    where: str = getattr(request, "param", "memory")
    if where == "postgres":
        stores: EmptiedStores = request.getfixturevalue("emptied_stores")
        monkeypatch.setattr(
            "holdfast.testing.environment.KeptStore", functools.partial(OnPostgres, stores)
        )
    return where


@pytest.fixture(autouse=True)
def nothing_is_left_behind(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No task or future of a run ends with an error that nobody saw, and no callback fails."""
    yield
    gc.collect()
    with_errors = [r for r in caplog.get_records("call") if r.name == "asyncio"]
    with_errors += [r for r in caplog.get_records("teardown") if r.name == "asyncio"]
    found = [r.getMessage() for r in with_errors if r.levelno >= logging.ERROR]
    assert found == []
