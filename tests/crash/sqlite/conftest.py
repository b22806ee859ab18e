"""What only a store in a file can show."""

from __future__ import annotations

import pytest


@pytest.fixture
def kind() -> str:
    return "sqlite"
