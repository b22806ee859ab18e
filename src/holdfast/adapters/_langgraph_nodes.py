"""Nodes of a graph as steps.

What a node returned is recorded, and on replay its writers and edges run again on that. What it
streamed is recorded with it, and on replay streamed again, as it was.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import ParentCommand
from langgraph.pregel import Pregel
from langgraph.pregel._read import DEFAULT_BOUND, PregelNode

import holdfast
from holdfast.adapters import _langgraph_values as values
from holdfast.adapters._langgraph_active import active, inside, one_of_many, place_of
from holdfast.adapters._langgraph_interrupts import answered, ask_caller
from holdfast.adapters._langgraph_streams import Streamed, now
from holdfast.adapters._shared import Place, as_step

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
                now.set(streamed)
                try:
                    output = await answered("/".join((*found.path, place)), streamed.config, once)
                    output = values.with_ids(output, values.random_id, self._reduced)
                    done = {"returned": output}
                except ParentCommand as command:
                    done = {"for_parent": command.args[0]}
            ran = True
            return {**done, "streamed": streamed.taken()} if streamed.items else done

        retry = self._retry or found.settings.policy.retry
        name = found.name(self._name + one_of_many(config))
        try:
            done = await found.claim(
                lambda: as_step(name, work, retry=retry, returns=self._returns)
            )
        except BaseException:
            streamed.end(returned=False)
            raise
        streamed.end()
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
