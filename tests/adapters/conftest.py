"""What tests that kill share: a process that has imported their module of cases.

And a note of the tests that have passed, for the table in docs/adapters.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters import matrix
from tests.adapters.harness import QUIET, Zygote

os.environ.update(QUIET)  # before a framework is imported


@pytest.fixture(scope="module")
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    folder = request.path.parent.name  # one environment or the other
    zygote = Zygote(f"tests.adapters.{folder}.{request.module.CASES}")
    yield zygote
    zygote.close()


_outcomes: dict[str, dict[str, bool]] = {}
"""By environment and test: of all its parameters together, and of each."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    file, _, test = report.nodeid.partition("::")
    path = Path(file)
    outcomes = _outcomes.setdefault(path.parent.name, {})
    name = f"{path.stem.removeprefix('test_')}::{test}"
    for one in {name, name.partition("[")[0]}:
        outcomes[one] = outcomes.get(one, True) and report.passed


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # the one that hears of all of them
        for environment, outcomes in _outcomes.items():
            matrix.note(environment, outcomes)
