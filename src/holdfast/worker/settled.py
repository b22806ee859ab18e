"""How a run that left memory has ended or halted, for whoever waits for it in this process."""

from __future__ import annotations

from holdfast.engine.execution import Execution
from holdfast.store.base import End, Suspend
from holdfast.types import HALTED


def has_settled(run: Execution) -> bool:
    """Whether it has, durably; its row says how then."""
    match run.settled:
        case End(status=status, output=output):
            run.row.status, run.row.output = status, output
        case Suspend(status=status, reason=reason) if status in HALTED:
            run.row.status, run.row.reason = status, reason
        case _:
            return False
    return True
