"""What only a store on a server can show."""

from __future__ import annotations

import pytest


@pytest.fixture
def kind() -> str:
    return "postgres"
