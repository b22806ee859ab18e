"""Nodes of a graph as steps.

What a node returned is recorded, and on replay its writers and edges run again on that. What it
streamed is recorded with it, and on replay streamed again, as it was.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.config import get_config
from langgraph.errors import ParentCommand
from langgraph.pregel import Pregel
from langgraph.pregel._messages import StreamMessagesHandler
from langgraph.pregel._read import DEFAULT_BOUND, PregelNode
from langgraph.pregel.protocol import StreamProtocol

import holdfast
from holdfast.adapters import _langgraph_values as values
from holdfast.adapters._langgraph_active import active, inside, one_of_many, place_of
from holdfast.adapters._langgraph_interrupts import answered, ask_caller, under
from holdfast.adapters._shared import Place, as_step

_CONF = "configurable"
_STREAM, _RUNTIME, _NS = "__pregel_stream", "__pregel_runtime", "checkpoint_ns"
_ONCE = holdfast.Retry(attempts=1)


def durable_nodes(
    nodes: dict[str, PregelNode], reduced: frozenset[str], returns: Any
) -> dict[str, PregelNode]:
    return {
        name: node.copy({"bound": DurableNode(name, node, reduced, returns)})
        if is_step(name, node)
        else node
        for name, node in nodes.items()
    }


def is_step(name: str, node: PregelNode) -> bool:
    """A graph as a node is none: its own nodes are."""
    bound = node.bound
    is_ours = isinstance(bound, DurableNode | Pregel) or bound is DEFAULT_BOUND
    return not name.startswith("__") and not is_ours


class DurableNode(Runnable[Any, Any]):
    def __init__(self, name: str, node: PregelNode, reduced: frozenset[str], returns: Any) -> None:
        self.name = self._name = name
        self.bound = node.bound
        self._reduced, self._returns = reduced, returns
        # Who has told LangGraph when to try a node again is taken at their word.
        self._retry = _ONCE if node.retry_policy else None

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return self.bound.invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        found = active()
        if found is None or config is None:
            return await self.bound.ainvoke(input, config, **kwargs)
        streamed = Streamed(config)
        place = place_of(config) or self._name
        ran = False

        async def once(given: Any) -> Any:
            return await placed(self.bound).ainvoke(input, given, **kwargs)

        async def work() -> Any:
            nonlocal ran
            with inside(found, place):
                try:
                    output = await answered("/".join((*found.path, place)), streamed.config, once)
                    output = values.with_ids(output, values.random_id, self._reduced)
                    done = {"returned": output}
                except ParentCommand as command:
                    done = {"for_parent": command.args[0]}
            ran = True
            return {**done, "streamed": streamed.items} if streamed.items else done

        retry = self._retry or found.settings.policy.retry
        name = found.name(self._name + one_of_many(config))
        try:
            done = await found.claim(
                lambda: as_step(name, work, retry=retry, returns=self._returns)
            )
        except BaseException:
            streamed.preview.end(returned=False)
            raise
        streamed.preview.end()
        if not ran:
            streamed.again(done.get("streamed", ()))
        if "for_parent" in done:
            raise ParentCommand(done["for_parent"])
        return ask_caller(done["returned"])


def placed(bound: Any) -> Any:
    """A sync function is called in a thread; what it calls belongs to the node all the same."""
    made = getattr(bound, "afunc", None)
    if not isinstance(made, functools.partial) or bound.func not in made.args:
        return bound
    function, place = bound.func, Place()

    @functools.wraps(function)
    def entering(*args: Any, **kwargs: Any) -> Any:
        with place.entered():
            return function(*args, **kwargs)

    copied = copy.copy(bound)
    args = [entering if one is function else one for one in made.args]
    copied.afunc = functools.partial(made.func, *args, **made.keywords)
    return copied


class Streamed:
    """What a node emits while it runs: tokens, its own events, those of graphs inside it."""

    def __init__(self, config: Any) -> None:
        self.items: list[list[Any]] = []
        self.preview = holdfast.Preview(lambda: self.items)
        self._meta = dict(config.get("metadata") or {})
        self._handlers: list[StreamMessagesHandler] = []
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
        self.again(self.preview.kept)  # if the node did not return it

    def again(self, items: Any) -> None:
        # Tasks have the same ids on every replay, and with them these namespaces.
        for kind, ns, *parts in items:
            if kind == "own":
                with under({_CONF: {_NS: ns}}):
                    self._runtime.stream_writer(parts[0])
            elif kind == "inner" and self._stream is not None:
                self._stream.__call__((tuple(ns), *parts))
            elif kind == "message":
                message, meta = parts
                for handler in self._handlers:
                    handler.seen.add(message.id)
                    handler.stream((tuple(ns), "messages", (message, {**self._meta, **meta})))

    def _write(self, event: Any) -> None:
        """By the node itself, or by a graph inside it."""
        self._keep(["own", get_config()["configurable"][_NS], event])
        self._runtime.stream_writer(event)

    def _pass_on(self, chunk: Any) -> None:
        self._keep(["inner", list(chunk[0]), *chunk[1:]])
        self._stream.__call__(chunk)

    def _heard(self, handler: Any) -> Any:
        if not isinstance(handler, StreamMessagesHandler):
            return handler
        ours = copy.copy(handler)
        if handler not in self._handlers:
            self._handlers.append(handler)

        def stream(chunk: Any) -> None:
            self._keep_message(chunk)
            handler.stream(chunk)

        ours.stream = stream
        return ours

    def _keep_message(self, chunk: Any) -> None:
        ns, _, (message, meta) = chunk
        if isinstance(message, BaseMessage):
            plain = {k: v for k, v in meta.items() if self._meta.get(k) != v and _is_plain(v)}
            self._keep(["message", list(ns), message.model_copy(deep=True), plain])

    def _keep(self, item: list[Any]) -> None:
        self.items.append(item)
        self.preview.begin()


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
