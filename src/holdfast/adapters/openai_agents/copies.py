"""Durable copies of agents: of an agent, those that it hands off to, and their tools.

A copy is of a class made for it, a subclass of the agent's own. Agents are found through handoffs
when the copy is made; agents used as tools, and those that guardrails, hooks and tools run, are
made durable by the runner when they run.
"""

from __future__ import annotations

import copy
import functools
import typing
import weakref
from typing import Any, TypeVar

from agents import Agent, Handoff, Model, Tool

import holdfast
from holdfast.adapters._active import OPTIONS
from holdfast.adapters._shared import AGENT_WORKFLOW
from holdfast.adapters.openai_agents.calls import durable_guardrail
from holdfast.adapters.openai_agents.model import as_durable
from holdfast.adapters.openai_agents.options import Options, active
from holdfast.adapters.openai_agents.servers import durable_server
from holdfast.adapters.openai_agents.tools import durable_tool, refuse_if_undurable, refuse_sandbox

A = TypeVar("A", bound=Agent[Any])

Copies = dict[int, tuple[Agent[Any], Agent[Any]]]
"""By the identity of the original; it is kept so that no other takes its place."""


def durable_copy(agent: A, options: Options, copies: Copies | None = None) -> A:
    """`copies`: those made already, for agents that hand off to one another."""
    copies = {} if copies is None else copies
    if id(agent) in copies:
        return typing.cast(A, copies[id(agent)][1])
    if getattr(agent, OPTIONS, None) is options:
        return agent
    refuse_sandbox(agent)
    kind: type[Any] = type(agent)
    made: A = object.__new__(_durable_class(kind))  # type: ignore[arg-type]
    made.__dict__.update(agent.__dict__)
    copies[id(agent)] = (agent, made)
    object.__setattr__(made, OPTIONS, options)
    made.__dict__.pop(AGENT_WORKFLOW, None)
    for tool in agent.tools:
        refuse_if_undurable(tool)
    made.tools = [durable_tool(tool, options) for tool in agent.tools]
    made.handoffs = [_durable_handoff(handoff, options, copies) for handoff in agent.handoffs]
    made.input_guardrails = [durable_guardrail(one) for one in agent.input_guardrails]
    made.output_guardrails = [durable_guardrail(one) for one in agent.output_guardrails]
    made.mcp_servers = [durable_server(server) for server in agent.mcp_servers]
    if isinstance(agent.model, Model):
        made.model = as_durable(agent.model, options)
    return made


def _durable_handoff(handoff: Any, options: Options, copies: Copies) -> Any:
    if isinstance(handoff, Agent):
        return durable_copy(handoff, options, copies)
    if not isinstance(handoff, Handoff):
        return handoff
    made = copy.copy(handoff)
    invoke = handoff.on_invoke_handoff

    # Not a step: it gives an agent. What it does in the world belongs into steps of its own.
    @functools.wraps(invoke)
    async def call(ctx: Any, given: Any) -> Any:
        return durable_copy(await invoke(ctx, given), options, copies)

    made.on_invoke_handoff = call
    known = getattr(handoff, "_agent_ref", None)
    target = known() if known is not None else None
    if target is not None:
        made._agent_ref = weakref.ref(durable_copy(target, options, copies))
    return made


class _Durable:
    """What the classes of durable agents have before those of the SDK."""

    async def get_all_tools(self, run_context: Any) -> list[Tool]:
        found: list[Tool] = await super().get_all_tools(run_context)  # type: ignore[misc]
        if holdfast.current_run() is None:
            return found
        options: Options = getattr(self, OPTIONS)
        if active() is None:
            raise holdfast.HoldfastError(
                "a durable agent was run by a runner that knows nothing of it: call "
                "agents.run.set_default_agent_runner before durable(), not after it"
            )
        for tool in found:
            refuse_if_undurable(tool)
        return [durable_tool(tool, options) for tool in found]  # also those of MCP servers

    def clone(self, **changes: Any) -> Any:
        made = super().clone(**changes)  # type: ignore[misc]
        object.__setattr__(made, OPTIONS, getattr(self, OPTIONS))
        return made


@functools.cache
def _durable_class(kind: type[Any]) -> type[Any]:
    if issubclass(kind, _Durable):
        return kind
    return type(kind.__name__, (_Durable, kind), {"__module__": kind.__module__})
