"""The SQLite store against the conformance suite, as a file and in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("holdfast.testing")

from holdfast.store import open_store  # noqa: E402
from holdfast.store.base import Store  # noqa: E402
from holdfast.testing.store_conformance import StoreConformance  # noqa: E402


async def opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url)
    await store.open()
    yield store
    await store.close()


class TestSQLiteFile(StoreConformance):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        async for store in opened(f"sqlite:///{tmp_path}/runs.db"):
            yield store


class TestSQLiteMemory(StoreConformance):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        async for store in opened("sqlite://:memory:"):
            yield store
