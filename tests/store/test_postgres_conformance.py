"""The PostgreSQL store against the conformance suite, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

pytest.register_assert_rewrite("holdfast.testing")

from holdfast.store.base import Store  # noqa: E402
from holdfast.store.postgres import PostgresStore  # noqa: E402
from holdfast.store.postgres_open import upgrade  # noqa: E402
from holdfast.testing.store_conformance import StoreConformance  # noqa: E402


class TestPostgres(StoreConformance):
    @pytest.fixture
    async def store(self, postgres_url: str) -> AsyncIterator[Store]:
        await upgrade(postgres_url)
        store = PostgresStore(postgres_url)
        await store.open()
        yield store
        await store.close()
