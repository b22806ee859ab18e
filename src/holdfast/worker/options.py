"""How a worker works, and the row of a run that is to be started."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta

from holdfast import codec
from holdfast.clock import Clock, to_micros
from holdfast.engine.host import OnStep
from holdfast.engine.workflow import RunOptions
from holdfast.types import NewRun


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


def new_run(workflow: str, payload: bytes, clock: Clock, options: RunOptions) -> NewRun:
    """The row of a run to be started."""
    now = clock.now()
    return NewRun(
        id=options.id or uuid.uuid4().hex,
        workflow=workflow,
        input=payload,
        digest=codec.digest(payload),
        created_at=now,
        incarnation=uuid.uuid4().hex,
        queue=options.queue,
        priority=options.priority,
        ready_at=now + (to_micros(options.delay) if options.delay else 0),
        deadline_at=now + to_micros(options.deadline) if options.deadline else None,
        session=options.session,
        on_busy=options.on_busy,
        while_waiting=options.while_waiting,
    )
