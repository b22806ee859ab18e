"""Durable graphs and swarms: what they know of themselves is each run's own.

A graph's nodes are visited, and their inputs are written, in the order in which they were added:
Strands keeps edges in sets, whose order differs from process to process.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncGenerator
from typing import Any

from strands.multiagent.base import Status
from strands.multiagent.graph import GraphState
from strands.multiagent.swarm import SharedContext, SwarmState

import holdfast
from holdfast.adapters._shared import NOT_FOR_THE_MODEL, Place, blocking
from holdfast.adapters.strands import hooks
from holdfast.adapters.strands.asking import answers
from holdfast.adapters.strands.options import Around, around, within
from holdfast.adapters.strands.own import Attributes, Own, above, options_of


class DurableTeam(Own):
    """What graphs and swarms have in common."""

    async def stream_async(
        self, task: Any, invocation_state: Any = None, **options: Any
    ) -> AsyncGenerator[Any, None]:
        team: Any = self
        inner = above(self)
        if holdfast.current_run() is None:
            async for event in inner.stream_async(task, invocation_state, **options):
                yield event
            return
        outer = around()
        place = Place() if outer is None else await outer.place_of(self)
        here = Around(place, self._holdfast_node)
        waits = options_of(self).approvals and outer is None
        while True:
            asked = None
            events = within(here, inner.stream_async(task, invocation_state, **options))
            async with contextlib.aclosing(events):
                async for event in events:
                    if waits and "result" in event and event["result"].interrupts:
                        asked = event["result"].interrupts
                    else:
                        yield event
                    if "result" in event:
                        _look_for_mistakes(event["result"])
            if asked is None:
                return
            task = await answers(asked, team.nodes)

    def __call__(self, task: Any, invocation_state: Any = None, **options: Any) -> Any:
        inner = above(self)
        if holdfast.current_run() is None:
            return inner.__call__(task, invocation_state, **options)
        call = inner.invoke_async(task, invocation_state, **options)
        return blocking(call, "use `await ....invoke_async(...)`")

    def _holdfast_node(self, executor: object) -> str:
        team: Any = self
        found = (name for name, node in team.nodes.items() if node.executor is executor)
        return next(found, "node")


class DurableGraph(DurableTeam):
    def _holdfast_begin(self, base: Attributes) -> Attributes:
        nodes = {name: copy.copy(node) for name, node in base["nodes"].items()}
        order = list(nodes)
        edges = [copy.copy(edge) for edge in base["edges"]]
        for edge in edges:
            edge.from_node, edge.to_node = (
                nodes[edge.from_node.node_id],
                nodes[edge.to_node.node_id],
            )
        for node in nodes.values():
            node.dependencies = {nodes[one.node_id] for one in node.dependencies}
            node.execution_status, node.result = Status.PENDING, None
        edges.sort(key=lambda e: (order.index(e.from_node.node_id), order.index(e.to_node.node_id)))
        begins = {node.node_id for node in base["entry_points"]}
        return {
            "nodes": nodes,
            "edges": edges,
            "entry_points": [node for name, node in nodes.items() if name in begins],
            "state": GraphState(),
            "_interrupt_state": hooks.InterruptState(),
            "_resume_next_nodes": [],
            "_resume_from_session": False,
            "_current_invocation_state": {},
        }

    def _find_newly_ready_nodes(self, completed_batch: list[Any]) -> list[Any]:
        graph: Any = self
        inner = above(self)
        found = set(inner._find_newly_ready_nodes(completed_batch))
        return [node for node in graph.nodes.values() if node in found]

    async def _execute_nodes_parallel(
        self, nodes: list[Any], invocation_state: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """As Strands does it, but for its look every tenth of a second whether the nodes are done:
        in a run each would be a durable timer."""
        graph: Any = self
        inner = above(self)
        if holdfast.current_run() is None:
            async for event in inner._execute_nodes_parallel(nodes, invocation_state):
                yield event
            return
        if graph._interrupt_state.activated:
            nodes = [node for node in nodes if node.execution_status == Status.INTERRUPTED]
        queue: asyncio.Queue[Any] = asyncio.Queue()
        for node in nodes:
            node.execution_status = Status.DISPATCHED
        tasks = [
            asyncio.create_task(graph._stream_node_to_queue(node, queue, invocation_state))
            for node in nodes
        ]
        left = len(tasks)
        try:
            while left:
                event = await queue.get()
                if isinstance(event, Exception):
                    raise event
                if event is None:  # the last of a node
                    left -= 1
                else:
                    yield event
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class DurableSwarm(DurableTeam):
    def _holdfast_begin(self, base: Attributes) -> Attributes:
        return {
            "nodes": {name: copy.copy(node) for name, node in base["nodes"].items()},
            "shared_context": SharedContext(copy.deepcopy(base["shared_context"].context)),
            "state": SwarmState(current_node=None, task="", completion_status=Status.PENDING),
            "_interrupt_state": hooks.InterruptState(),
            "_resume_from_session": False,
            "_turn": None,
        }


def _look_for_mistakes(result: Any) -> None:
    """A swarm takes any error for the failure of a node; these are the program's."""
    for node in result.results.values():
        if isinstance(node.result, NOT_FOR_THE_MODEL):
            raise node.result
