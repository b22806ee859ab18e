"""What was said to `durable(...)`, and what is running: found by context in whatever it calls."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import holdfast
from holdfast.adapters._shared import Place, Policy

M = TypeVar("M")
G = TypeVar("G")
T = TypeVar("T")

OPTIONS = "__holdfast_options__"
"""Where a durable agent keeps them."""


@dataclass(frozen=True, kw_only=True)
class Options(Generic[M, G]):
    """models: those to turn to, in order. on_overflow: makes what a model is given shorter.
    approvals: people are waited for; otherwise the caller is asked, as without Holdfast."""

    policy: Policy = field(default_factory=Policy)
    models: Sequence[M] = ()
    on_overflow: Callable[[G], Any] | None = None
    approvals: bool = True


class Now(Generic[T]):
    """What is running here; nothing outside of what is durable, and of runs."""

    def __init__(self, name: str) -> None:
        self.var: contextvars.ContextVar[T | None] = contextvars.ContextVar(name, default=None)

    def found(self) -> T | None:
        found = self.var.get()
        return found if found is not None and holdfast.current_run() is not None else None

    @contextlib.contextmanager
    def entered(self, found: T | None) -> Iterator[None]:
        token = self.var.set(found)
        try:
            yield
        finally:
            self.var.reset(token)


class Running(Protocol):
    @property
    def options(self) -> Any: ...
    @property
    def place(self) -> Place: ...


R = TypeVar("R", bound=Running)


class Agents(Now[R]):
    """For frameworks that let agents run agents: those that a durable one runs are, too."""

    def options_of(self, agent: object) -> Any:
        """None if the agent is to be left alone: outside of runs, and if nobody made it durable."""
        if holdfast.current_run() is None:
            return None
        now = self.var.get()
        return getattr(agent, OPTIONS, None) or (now.options if now is not None else None)

    def place(self) -> Place:
        """Where the calls of what is running belong."""
        now = self.found()
        return now.place.nearest() if now is not None else Place()
