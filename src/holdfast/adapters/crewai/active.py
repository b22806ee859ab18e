"""What a durable crew or flow is doing at the moment, found by context in whatever it calls.

CrewAI works in threads of its own and copies the context into each: all of them are in the scope of
the crew's step. So a call is told from others by its name: the task's, then what is called.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from crewai.types.usage_metrics import UsageMetrics

import holdfast
from holdfast.adapters._active import Now
from holdfast.adapters._shared import Place, Policy, as_thread_step

SETTINGS = "__holdfast_settings__"
ONCE = holdfast.Retry(attempts=1)  # of crews and flows: what fails inside was tried again there
OnOverflow = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True)
class Settings:
    policy: Policy = field(default_factory=Policy)
    models: Sequence[Any] = ()  # of BaseLLM
    on_overflow: OnOverflow | None = None
    is_own_run: bool = False  # nothing else in the run asks people


@dataclass(frozen=True)
class Active:
    """A crew, and where in it the code is."""

    settings: Settings
    path: tuple[str, ...] = ()  # the task, and whom it delegated to
    call_id: str | None = None  # of the tool that is called
    place: Place | None = None  # where what is called belongs, if not where it is called

    def name(self, what: str) -> str:
        return ".".join((*self.path, what))


_now = Now[Active]("holdfast.crewai")

active, entered = _now.found, _now.entered


def inside(found: Active, *path: str) -> contextlib.AbstractContextManager[None]:
    """In a part of the crew that goes on beside others."""
    return entered(replace(found, path=(*found.path, *path), call_id=None))


def call(
    found: Active,
    what: str,
    work: Callable[[], Any],
    *,
    shown: Any = None,
    retry: holdfast.Retry | None = None,
) -> Any:
    """A step in the crew's own scope. What it calls in turn is in the step's."""

    def stepped() -> Any:
        with entered(Active(found.settings)):
            return work()

    there = found.place.entered() if found.place is not None else contextlib.nullcontext()
    with there:
        return as_thread_step(found.name(what), stepped, shown=shown, retry=retry)


def on_runs_loop(coroutine: Any) -> Any:
    """A thread of a run lets the run's event loop do it, where durable calls can be awaited."""
    return holdfast.race(tool=coroutine).result()[1]


# What models have used, for those who want to know when it is only replayed


class Spending:
    """Counts what is used in a flow's method. missed: is told of what the flow cannot see itself,
    because it was not used now but in an earlier life."""

    def __init__(self, missed: Callable[[UsageMetrics], None]) -> None:
        self.total = UsageMetrics()
        self._missed = missed
        self._lock = threading.Lock()

    def add(self, usage: UsageMetrics, *, missed: bool = False) -> None:
        with self._lock:
            self.total.add_usage_metrics(usage)
        if missed:
            self._missed(usage)


_spending: contextvars.ContextVar[Spending | None] = contextvars.ContextVar(
    "holdfast.crewai.spending", default=None
)


@contextlib.contextmanager
def spending(spent: Spending) -> Iterator[None]:
    token = _spending.set(spent)
    try:
        yield
    finally:
        _spending.reset(token)


def spend(usage: UsageMetrics | None, *, missed: bool = False) -> None:
    spent = _spending.get()
    if spent is not None and usage is not None:
        spent.add(usage, missed=missed)
