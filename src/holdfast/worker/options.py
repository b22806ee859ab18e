"""How a worker works."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from holdfast.engine.host import OnStep
from holdfast.errors import BadArguments
from holdfast.records import FrozenRecord


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Retention(FrozenRecord):
    """How long ended runs and idle sessions are kept.

    runs: after its end; None: for ever.
    ids: how long a deleted run's id cannot be used again, so that a late retry of a request is not
    taken for a new one.
    sessions: state and messages of a session, after its last run ended; None: until somebody
    deletes them (`app.delete_session`).
    """

    runs: timedelta | None = timedelta(days=30)
    ids: timedelta = timedelta(days=30)
    sessions: timedelta | None = None

    def __post_init__(self) -> None:
        given = {"runs": self.runs, "ids": self.ids, "sessions": self.sessions}
        for name, value in given.items():
            if value is not None and value < timedelta(0):
                raise BadArguments(f"Retention({name}={value!r}): it cannot be negative")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class WorkerOptions(FrozenRecord):
    concurrency: int = 1000  # runs in memory at once
    threads: int = 64  # `def` workflows at once
    lease: timedelta = timedelta(seconds=6)
    hang: timedelta = timedelta(seconds=20)
    grace: timedelta = timedelta(seconds=10)
    memory_wait: timedelta = timedelta(seconds=1)
    unsure_wait: timedelta = timedelta(seconds=60)
    retention: Retention = Retention()
    on_step: OnStep | None = None  # told of every try at a step, as its body begins
