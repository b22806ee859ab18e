"""What tests that kill share: a process that has imported their module of cases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adapters.harness import Zygote


@pytest.fixture(scope="module")
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    zygote = Zygote(f"tests.adapters.one.{request.module.CASES}")
    yield zygote
    zygote.close()
