"""What tests that kill share: a process that has imported their module of cases."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.adapters.harness import QUIET, Zygote

os.environ.update(QUIET)  # before a framework is imported


@pytest.fixture(scope="module")
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    folder = request.path.parent.name  # one environment or the other
    zygote = Zygote(f"tests.adapters.{folder}.{request.module.CASES}")
    yield zygote
    zygote.close()
