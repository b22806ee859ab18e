"""How a worker works."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from holdfast.engine.host import OnStep


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    concurrency: int = 1000  # runs in memory at once
    threads: int = 64  # `def` workflows at once
    lease: timedelta = timedelta(seconds=6)
    hang: timedelta = timedelta(seconds=20)
    grace: timedelta = timedelta(seconds=10)
    memory_wait: timedelta = timedelta(seconds=1)
    unsure_wait: timedelta = timedelta(seconds=60)
    on_step: OnStep | None = None  # told of every try at a step, as its body begins
