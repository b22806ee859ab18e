"""The pytest plugin: the fixture `durable`, for tests of durable code.

It needs no plugin for async tests in particular: what it makes is opened by the test itself, on the
test's own event loop.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.testing.environment import Environment


@pytest.fixture
def durable() -> Callable[..., Environment]:
    """Makes environments: `async with durable([my_workflow]) as env: ...`; see docs/testing.md."""
    return Environment
