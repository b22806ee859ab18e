"""What only a store on a server can show."""

from __future__ import annotations

import pytest


@pytest.fixture
def store_url(postgres_url: str) -> str:
    return postgres_url
