"""The PostgreSQL store against the conformance suite, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

pytest.register_assert_rewrite("holdfast.testing")

from holdfast.store.base import Store  # noqa: E402
from holdfast.store.postgres import PostgresStore  # noqa: E402
from holdfast.testing.store_conformance import StoreConformance  # noqa: E402
from tests.helpers.emptied import EmptiedStores  # noqa: E402


class TestPostgres(StoreConformance):
    @pytest.fixture
    async def store(self, emptied_stores: EmptiedStores) -> AsyncIterator[Store]:
        store = PostgresStore(await emptied_stores.take())
        await store.open()
        yield store
        await store.close()
