"""What a run needs of the worker that executes it, and whether any is open in this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Protocol

from holdfast.clock import Clock, Micros
from holdfast.store.base import Reservation, Started
from holdfast.types import NewRun, RunRow

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution
    from holdfast.engine.loop import LoopHooks


class Limiters(Protocol):
    """What all workers together admit no faster than they were told to."""

    async def reserve(self, asked: Reservation) -> Micros:
        """Takes a place; says when it may go."""
        ...

    async def hold_off(self, name: str, until: Micros) -> None: ...


class Host(Protocol):
    clock: Clock
    hooks: LoopHooks
    settings: Settings

    @property
    def limiters(self) -> Limiters: ...

    @property
    def sync_executor(self) -> Executor:
        """Where `def` workflows get their threads."""
        ...

    def mark(self, run: Execution) -> None:
        """The run has something to commit."""
        ...

    def lease_holds(self) -> bool: ...

    def left(self, run: Execution) -> None:
        """The run is out of memory."""
        ...

    def rested(self, run: Execution) -> None:
        """The run waits for something."""
        ...

    async def start(self, new: NewRun) -> Started:
        """Accepts another run; returns once it is durable."""
        ...


OnStep = Callable[[RunRow, str, bytes | None], None]
"""Is told the run, the step's key and the digest of its arguments."""


class Settings:
    """What a worker sets for its runs."""

    __slots__ = ("checks_arguments", "memory_wait", "on_step", "unsure_wait")

    def __init__(
        self, memory_wait: Micros, unsure_wait: Micros, on_step: OnStep | None = None
    ) -> None:
        self.memory_wait = memory_wait  # waits shorter than this stay in memory
        self.unsure_wait = unsure_wait  # the same, while the body may be doing plain I/O
        self.on_step = on_step  # called when a try at a step begins
        self.checks_arguments = False  # look whether a step changed its own, for tests


# Which are open in this process: needed to tell a lost context from plain use.

_open: set[int] = set()


def opened(host: object) -> None:
    _open.add(id(host))


def closed(host: object) -> None:
    _open.discard(id(host))


def any_open() -> bool:
    return bool(_open)
