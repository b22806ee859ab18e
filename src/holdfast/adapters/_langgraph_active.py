"""What a durable graph is doing at the moment, found by context in whatever its nodes call."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel

import holdfast
from holdfast.adapters._active import Now
from holdfast.adapters._shared import Place, Policy, as_step, as_thread_step

T = TypeVar("T")

OnOverflow = Callable[[list[Any]], Any]
_MISSING = object()


@dataclass(frozen=True)
class Settings:
    policy: Policy = field(default_factory=Policy)
    models: Sequence[BaseChatModel] = ()
    on_overflow: OnOverflow | None = None
    approvals: bool = True  # interrupts wait; otherwise the caller of the graph is asked
    is_own_run: bool = False  # nothing else in the run asks people


class Memory:
    """What was called in a node that was interrupted: begun again, it finds these results.

    LangGraph runs a node from its beginning when it gets an answer. What it had asked a model or a
    tool until then is not asked again, as long as it asks the same.
    """

    def __init__(self) -> None:
        self._done: dict[tuple[str, int], tuple[Any, Any]] = {}
        self._asked: Counter[str] = Counter()

    def begins_again(self) -> None:
        self._asked.clear()

    def place(self, name: str) -> tuple[str, int]:
        self._asked[name] += 1
        return name, self._asked[name]

    def find(self, place: tuple[str, int], shown: Any) -> Any:
        before, result = self._done.get(place, (_MISSING, None))
        return result if before == shown else _MISSING

    def keep(self, place: tuple[str, int], shown: Any, result: Any) -> None:
        self._done[place] = (shown, result)


@dataclass(frozen=True)
class Active:
    """A graph, and the node of it that is running, if any."""

    settings: Settings
    new_id: Callable[[], str]  # for checkpoints and messages; the same on every replay
    memory: Memory | None = None
    path: tuple[str, ...] = ()  # of the nodes around
    place: Place = field(default_factory=Place)  # where its calls belong
    within: tuple[str, ...] = ()  # the nodes around in the same place, which are graphs themselves

    def name(self, what: str) -> str:
        return ".".join((*self.within, what))

    def claim(self, make: Callable[[], T]) -> T:
        """Makes a durable call where it belongs, and not in a task of the framework's."""
        return self.place.nearest().claim(make)


_now = Now[Active]("holdfast.langgraph")

active, entered = _now.found, _now.entered


def inside(found: Active, *path: str) -> contextlib.AbstractContextManager[None]:
    """In a step that can be interrupted and begun again."""
    path = (*found.path, *path)
    return entered(replace(found, memory=Memory(), path=path, place=Place(), within=()))


def place_of(config: Any) -> str | None:
    """Which node this is the config of, and when in its graph: for names that people see."""
    found = (config or {}).get("metadata") or {}
    if "langgraph_node" not in found or "langgraph_step" not in found:
        return None
    return f"{found['langgraph_node']}:{found['langgraph_step']}{one_of_many(config)}"


def one_of_many(config: Any) -> str:
    """Which one, of those to which a `Send` was sent."""
    path: tuple[Any, ...] = (config.get("metadata") or {}).get("langgraph_path") or ()
    return f".{path[1]}" if len(path) > 1 and path[0] == "__pregel_push" else ""


# Calls as steps


async def call(
    name: str,
    work: Callable[[], Awaitable[Any]],
    *,
    shown: Any = None,
    retry: holdfast.Retry | None = None,
    place: Place,
    shows: Callable[[Any], Any] = lambda result: result,
) -> Any:
    """shows: makes of what the step returned what the caller gets, once."""

    def make() -> Awaitable[Any]:
        return place.nearest().claim(lambda: as_step(name, work, shown=shown, retry=retry))

    found = active()
    memory = found.memory if found else None
    if memory is None:
        return shows(await make())
    asked = memory.place(name)
    if (known := memory.find(asked, shown)) is not _MISSING:
        return known
    result = shows(await make())
    memory.keep(asked, shown, result)
    return result


def call_in_thread(
    name: str,
    work: Callable[[], Any],
    *,
    shown: Any = None,
    retry: holdfast.Retry | None = None,
    shows: Callable[[Any], Any] = lambda result: result,
) -> Any:
    found = active()
    memory = found.memory if found else None
    if memory is None:
        return shows(as_thread_step(name, work, shown=shown, retry=retry))
    place = memory.place(name)
    if (known := memory.find(place, shown)) is not _MISSING:
        return known
    result = shows(as_thread_step(name, work, shown=shown, retry=retry))
    memory.keep(place, shown, result)
    return result
