"""What nodes and tasks stream while they work: recorded with them, and streamed again on replay.

Tokens, events of their own, those of graphs inside; and what the graph itself tells of the tasks
that a node calls, for on replay of the node these are not called again.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
from collections.abc import Callable
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.config import get_config
from langgraph.pregel._loop import PregelLoop
from langgraph.pregel._messages import StreamMessagesHandler
from langgraph.pregel._tools import StreamToolCallHandler
from langgraph.pregel.protocol import StreamProtocol

import holdfast
from holdfast.adapters._langgraph_interrupts import under

_MISSING = object()
_STREAMED = "__holdfast_streamed__"
_CONF = "configurable"
_STREAM, _RUNTIME, _NS, _CALL = (
    "__pregel_stream",
    "__pregel_runtime",
    "checkpoint_ns",
    "__pregel_call",
)


class Streamed:
    """What a node emits while it runs, or a task, which is then a part of the node's (`outer`)."""

    def __init__(self, config: Any, outer: Streamed | None = None) -> None:
        self.items: list[list[Any]] = []
        self._outer = outer
        self._event_loop: asyncio.AbstractEventLoop = (
            outer._event_loop if outer is not None else asyncio.get_running_loop()
        )
        self._preview = holdfast.Preview(lambda: self.items) if outer is None else None
        self._meta = dict(config.get("metadata") or {})
        self._handlers: list[Any] = []
        self._has_events = False
        conf = dict(config.get(_CONF, {}))
        self._runtime: Any = conf.get(_RUNTIME)
        self._stream: Any = conf.get(_STREAM)
        if self._runtime is not None:
            conf[_RUNTIME] = self._runtime.override(stream_writer=self._write)
        if self._stream is not None:
            conf[_STREAM] = StreamProtocol(self._pass_on, self._stream.modes)
        callbacks: Any = config.get("callbacks")
        if hasattr(callbacks, "inheritable_handlers"):
            callbacks = callbacks.copy()
            callbacks.handlers = [self._heard(one) for one in callbacks.handlers]
            callbacks.inheritable_handlers = [
                self._heard(one) for one in callbacks.inheritable_handlers
            ]
        self.config: Any = {**config, _CONF: conf, "callbacks": callbacks}
        self._seen_before = {
            one for handler in self._of(StreamMessagesHandler) for one in handler.seen
        }
        schedules = getattr(conf.get(_CALL), "keywords", {}).get("schedule_task")
        self.loop: Any = getattr(schedules, "__self__", None)  # that runs the node
        if self._preview is not None:
            self.again(self._preview.kept)  # if the node did not return it

    def end(self, *, returned: bool = True) -> None:
        """The step has ended."""
        if self._preview is not None:
            self._preview.end(returned=returned)

    def taken(self) -> list[list[Any]]:
        """All of it, at the end of the node. If the model's answer was streamed as events, the
        message that the node returns must not be streamed once more; its id is known here."""
        if self._has_events:
            seen = {one for handler in self._of(StreamMessagesHandler) for one in handler.seen}
            self.items.append(["seen", [], sorted(filter(None, seen - self._seen_before))])
        return self.items

    def again(self, items: Any) -> None:
        # Tasks have the same ids on every replay, and with them these namespaces.
        for kind, ns, *parts in items:
            self._keep_around([kind, ns, *parts])
            if kind == "told" and self.loop is not None and self.loop.stream is not None:
                # After what came before, which LangGraph streams a moment later.
                self._event_loop.call_soon_threadsafe(self.loop.stream, (tuple(ns), *parts))
            elif kind == "own":
                with under({_CONF: {_NS: ns}}):
                    self._runtime.stream_writer(parts[0])
            elif kind == "inner" and self._stream is not None:
                self._stream.__call__((tuple(ns), *parts))
            elif kind == "message":
                message, meta = parts
                for handler in self._of(StreamMessagesHandler):
                    handler.seen.add(_id_of(message))
                    handler.stream((tuple(ns), "messages", (message, {**self._meta, **meta})))
            elif kind == "seen":
                for handler in self._of(StreamMessagesHandler):
                    handler.seen.update(parts[0])
            elif kind == "call":
                for handler in self._of(StreamToolCallHandler):
                    handler.stream((tuple(ns), *parts))

    def _of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self._handlers if isinstance(one, kind)]

    def _write(self, event: Any) -> None:
        """By the node itself, or by a graph inside it."""
        self.keep(["own", get_config()["configurable"][_NS], event])
        self._runtime.stream_writer(event)

    def _pass_on(self, chunk: Any) -> None:
        self.keep(["inner", list(chunk[0]), *chunk[1:]])
        self._stream.__call__(chunk)

    def _heard(self, handler: Any) -> Any:
        if not isinstance(handler, StreamMessagesHandler | StreamToolCallHandler):
            return handler
        ours = copy.copy(handler)
        if handler not in self._handlers:
            self._handlers.append(handler)

        def stream(chunk: Any) -> None:
            self._keep_heard(chunk)
            handler.stream(chunk)

        ours.stream = stream
        return ours

    def _keep_heard(self, chunk: Any) -> None:
        ns, mode, payload = chunk
        if mode != "messages":
            self.keep(["call", list(ns), mode, payload])
            return
        message, meta = payload  # or an event about a message
        self._has_events = self._has_events or not isinstance(message, BaseMessage)
        known = self._meta if self._outer is None else {}
        plain = {k: v for k, v in meta.items() if known.get(k, _MISSING) != v and _is_plain(v)}
        self.keep(["message", list(ns), copy.deepcopy(message), plain])

    def keep(self, item: list[Any]) -> None:
        self.items.append(item)
        self._keep_around(item)
        if self._preview is not None:
            self._preview.begin()

    def _keep_around(self, item: list[Any]) -> None:
        """A task has the node's callbacks, but not what the node streams by."""
        if self._outer is not None and item[0] not in ("message", "call", "seen"):
            self._outer.keep(item)


def _id_of(message: Any) -> Any:
    return message.id if isinstance(message, BaseMessage) else message.get("message_id")


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float | bool)


def returned(streamed: Streamed | None, value: Any) -> Any:
    """What the step of a task returns."""
    if streamed is None or not streamed.items:
        return value
    return {_STREAMED: streamed.taken(), "returned": value}


def shown(streamed: Streamed | None, ran: bool, value: Any) -> Any:
    """What the task returned; what it streamed is streamed, if it has not been."""
    if not isinstance(value, dict) or _STREAMED not in value:
        return value
    if streamed is not None and not ran:
        streamed.again(value[_STREAMED])
    return value["returned"]


now: contextvars.ContextVar[Streamed | None] = contextvars.ContextVar(
    "holdfast.langgraph.streamed", default=None
)


def install() -> None:
    emit = getattr(PregelLoop, "_emit", None)
    if emit is not None and not hasattr(emit, "__wrapped__"):
        PregelLoop._emit = _told(emit)  # type: ignore[method-assign]


def _told(emit: Callable[..., None]) -> Callable[..., None]:
    """What a graph tells of a task is told in the context of the node that has called it."""

    @functools.wraps(emit)
    def told(self: Any, *args: Any, **kwargs: Any) -> None:
        streamed, stream = now.get(), self.stream
        if streamed is None or streamed.loop is not self or stream is None:
            return emit(self, *args, **kwargs)

        def keep(chunk: Any) -> None:
            streamed.keep(["told", list(chunk[0]), *chunk[1:]])
            stream(chunk)

        self.stream = StreamProtocol(keep, stream.modes)
        try:
            return emit(self, *args, **kwargs)
        finally:
            self.stream = stream

    return told
