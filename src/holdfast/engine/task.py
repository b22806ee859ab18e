"""The task that a workflow's body runs in, and one way for it to end."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.engine.context import current


class Continue(BaseException):
    """Raised by `continue_as`: the run goes on under a fresh journal."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload


class BodyTask(asyncio.Task[Any]):
    """Knows who cancelled it. Code of the run that does so goes the same way on every replay, and
    ends the run; anybody else (a loop that is shut down) only ends it here."""

    from_outside = False

    def cancel(self, msg: Any | None = None) -> bool:
        where = current.get()
        if where is None or where.frame.run.task is not self:
            self.from_outside = True
        return super().cancel(msg)
