"""Copies of workflows: each run has one of its own, as it was built.

A workflow holds the state of its executors, and only one run at a time. What is data is copied, and
what of the framework holds data; clients, tools and objects of your own classes are shared.
"""

from __future__ import annotations

import collections
import copy
import types
from typing import Any

from agent_framework import (
    Agent,
    AgentMiddleware,
    AgentSession,
    BaseAgent,
    BaseChatClient,
    ChatMiddleware,
    ContextProvider,
    Executor,
    FunctionMiddleware,
    FunctionTool,
    InProcRunnerContext,
    Workflow,
)

from holdfast.adapters._shared import is_plain

_SHARED = (BaseAgent, BaseChatClient, FunctionTool, type)
_OF_AGENTS = (AgentMiddleware, ChatMiddleware, FunctionMiddleware, ContextProvider)
_ORCHESTRATIONS = "agent_framework_orchestrations."
_OURS = ("agent_framework.", "agent_framework_")
_DEEP_MAX = 20


def copied(workflow: Workflow) -> Workflow:
    copies = Copies()
    executors = {name: copies.of_executor(one) for name, one in workflow.executors.items()}
    designated = workflow._output_designation
    has_any = designated.outputs is not None or designated.intermediates
    return Workflow(
        workflow.edge_groups,
        executors,
        executors[workflow.start_executor_id],
        InProcRunnerContext(),
        workflow.name,
        workflow.description,
        workflow.max_iterations,
        output_from=sorted(designated.outputs or ()) if has_any else None,
        intermediate_output_from=sorted(designated.intermediates) if has_any else None,
    )


class Copies:
    """Of what belongs together; each object is copied once."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}  # with the originals, which stay alive by it

    def of_executor(self, executor: Executor) -> Executor:
        made: Executor = self._of_object(executor, 0)
        made._execution_lock = None
        return made

    def _of_object(self, value: Any, depth: int) -> Any:
        made = object.__new__(type(value))
        self._made[id(value)] = (value, made)
        for name, item in vars(value).items():
            made.__dict__[name] = self._of(item, depth + 1)
        return made

    def _of_agent(self, agent: Agent[Any], depth: int) -> Agent[Any]:
        """Orchestrations note in its middleware what it has called."""
        made = copy.copy(agent)
        self._made[id(agent)] = (agent, made)
        for name in ("middleware", "context_providers"):
            made.__dict__[name] = self._of(getattr(agent, name), depth + 1)
        return made

    def _of(self, value: Any, depth: int) -> Any:
        if id(value) in self._made:
            return self._made[id(value)][1]
        if isinstance(value, Agent):
            return self._of_agent(value, depth)
        if isinstance(value, _OF_AGENTS) and not type(value).__module__.startswith(_ORCHESTRATIONS):
            return value
        if depth > _DEEP_MAX or isinstance(value, _SHARED):
            return value
        kind: Any = type(value)
        if kind in (dict, collections.OrderedDict):
            return kind((key, self._of(item, depth + 1)) for key, item in value.items())
        if kind in (list, set, frozenset, tuple, collections.deque):
            return kind(self._of(item, depth + 1) for item in value)
        if kind is types.MethodType:
            return types.MethodType(value.__func__, self._of(value.__self__, depth + 1))
        if isinstance(value, Workflow):
            return copied(value)
        if isinstance(value, AgentSession) or is_plain(value):
            return copy.deepcopy(value)
        if kind.__module__.startswith(_OURS) and hasattr(value, "__dict__"):
            return self._of_object(value, depth)
        return value
