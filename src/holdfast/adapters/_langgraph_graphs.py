"""Compiled graphs that run durably inside of runs, and as they always did outside."""

from __future__ import annotations

import functools
import itertools
import time
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

from langgraph.channels import BinaryOperatorAggregate
from langgraph.checkpoint.base.id import UUID as SortedUUID
from langgraph.pregel import Pregel
from langgraph.pregel import _checkpoint as pregel_checkpoint

import holdfast
from holdfast.adapters import _langgraph_values as values
from holdfast.adapters._langgraph_active import Active, Settings, active, entered, place_of
from holdfast.adapters._langgraph_nodes import durable_nodes
from holdfast.adapters._langgraph_saver import lent
from holdfast.adapters._shared import AGENT_WORKFLOW, find_hooks, require_name

_SETTINGS = "__holdfast_settings__"
_OURS = (_SETTINGS, AGENT_WORKFLOW)
_SINCE_1582 = 0x01B21DD213814000  # 100 ns from the epoch of uuids to 1970


class DurableGraph:
    """What a durable graph does differently. Its class is made of this and of its former one."""

    async def astream(self, input: Any, config: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
        plain = super().astream  # type: ignore[misc]
        if holdfast.current_run() is None:
            async for item in plain(input, config, **kwargs):
                yield item
            return
        found = self._begin(config)
        given = values.with_ids(input, found.new_id, reduced_keys(cast(Pregel, self)))
        config, scratch = lent(self, config)
        with entered(found):
            inner = plain(given, config, **kwargs)
        try:
            while True:
                # Only while it works: its reader is somebody else.
                with entered(found):
                    try:
                        item = await anext(inner)
                    except StopAsyncIteration:
                        break
                yield item
        except Exception:
            if scratch is not None:
                await scratch.flush()
            raise
        finally:
            with entered(found):
                await inner.aclose()
        if scratch is not None:
            await scratch.flush()

    def stream(self, input: Any, config: Any = None, **kwargs: Any) -> Iterator[Any]:
        if holdfast.current_run() is None:
            yield from super().stream(input, config, **kwargs)  # type: ignore[misc]
            return

        async def all_of_it() -> list[Any]:
            return [item async for item in self.astream(input, config, **kwargs)]

        yield from _from_thread(all_of_it)

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        if holdfast.current_run() is None:
            return super().invoke(input, config, **kwargs)  # type: ignore[misc]
        ainvoke = cast(Pregel, self).ainvoke
        return _from_thread(functools.partial(ainvoke, input, config, **kwargs))

    def copy(self, update: dict[str, Any] | None = None) -> Any:
        """As `with_config` makes it."""
        kept = {name: self.__dict__[name] for name in _OURS if name in self.__dict__}
        attributes = {k: v for k, v in self.__dict__.items() if k not in (*_OURS, "__orig_class__")}
        copied: Any = type(self)(**{**attributes, **(update or {})})
        copied.__dict__.update(kept)
        return copied

    def __getattr__(self, name: str) -> Any:
        if name == AGENT_WORKFLOW:
            require_name(self, None)  # where it would be started: it says how to name it
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _begin(self, config: Any) -> Active:
        outer = active()
        settings: Settings = self.__dict__.get(_SETTINGS) or (
            outer.settings if outer else Settings()
        )
        path = outer.path if outer else ()
        if outer is None or outer.memory is not None or not (node := place_of(config)):
            return Active(settings, new_ids(holdfast.once(_start, name="graph")), path=path)
        # It is a node itself, and its nodes belong to where the graph around it is.
        within = (*outer.within, node)
        name = ".".join((*within, "graph"))
        start = outer.claim(lambda: holdfast.once(_start, name=name))
        path = (*path, node)
        return Active(settings, new_ids(start), path=path, place=outer.place, within=within)


def _start() -> list[int]:
    return [time.time_ns() // 100 + _SINCE_1582, uuid.uuid4().int & 0xFFFFFFFFFFFF]


def new_ids(start: list[int]) -> Callable[[], str]:
    """Ids that sort by time, as LangGraph's own do, and are the same on every replay."""
    since, node = start
    count = itertools.count()

    def new_id() -> str:
        ticks = since + next(count)
        number = ((ticks >> 12) & 0xFFFFFFFFFFFF) << 80 | (ticks & 0x0FFF) << 64 | node
        return str(SortedUUID(int=number, version=6))

    return new_id


def reduced_keys(graph: Pregel[Any, Any, Any, Any]) -> frozenset[str]:
    """The keys whose values are messages in any form: their reducer makes messages of them."""
    return frozenset(
        name
        for name, channel in graph.channels.items()
        if isinstance(channel, BinaryOperatorAggregate)
        and getattr(channel.operator, "__name__", "") in ("add_messages", "_add_messages")
    )


def _from_thread(work: Callable[[], Any]) -> Any:
    """A thread of a run lets the run's event loop do it."""
    return holdfast.race(graph=work()).result()[1]


def durable_graph(graph: Any, settings: Settings | None = None) -> Any:
    former: Any = type(graph)
    kind = _kind(former)
    copied = object.__new__(kind)
    copied.__dict__.update(graph.__dict__)
    copied.__dict__.pop("__orig_class__", None)
    copied.nodes = durable_nodes(graph.nodes, reduced_keys(graph), values.classes_in(graph))
    copied.__dict__[_SETTINGS] = settings
    return copied


@functools.cache
def _kind(kind: Any) -> Any:
    if issubclass(kind, DurableGraph):
        return kind
    return type(kind.__name__, (DurableGraph, kind), {"__module__": kind.__module__})


# Graphs that nodes call, and what LangGraph names by the time


_inner: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def install() -> None:
    if hasattr(Pregel.astream, "__wrapped__"):
        return
    for name in ("astream", "stream", "invoke"):
        setattr(Pregel, name, _entering(name, getattr(Pregel, name)))
    queued = find_hooks(["langgraph._internal._queue:AsyncQueue.wait"])
    for waits in filter(None, queued.values()):
        holdfast.waits_within(waits)  # for what the graph's own nodes stream
    original = pregel_checkpoint.uuid6

    @functools.wraps(original)
    def uuid6(*args: Any, **kwargs: Any) -> Any:
        found = active()
        return found.new_id() if found is not None else original(*args, **kwargs)

    pregel_checkpoint.uuid6 = uuid6


def _entering(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def entering(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self, DurableGraph) or active() is None:
            return original(self, *args, **kwargs)
        if self not in _inner:
            _inner[self] = durable_graph(self)
        return getattr(_inner[self], name)(*args, **kwargs)

    return entering
