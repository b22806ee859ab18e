"""What every test of the engine is held to."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_is_left_behind(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No task or future of a run ends with an error that nobody saw, and no callback fails."""
    yield
    gc.collect()
    with_errors = [r for r in caplog.get_records("call") if r.name == "asyncio"]
    with_errors += [r for r in caplog.get_records("teardown") if r.name == "asyncio"]
    found = [r.getMessage() for r in with_errors if r.levelno >= logging.ERROR]
    assert found == []
