"""AWS Strands: agents, graphs and swarms whose calls of models and tools are steps in a run.

    agent = durable(Agent(name="support", model=model, tools=[search]))

Inside a workflow `agent.invoke_async`, `stream_async` and, in `def` workflows, `agent("...")` are
used as before and journal into its run; `app.start(agent, "hello")` is a run of its own. Outside of
runs nothing changes.

Not journaled: what hooks, middleware, edge conditions and callback handlers do by themselves. They
run again on replay; agents that they run, and steps that they call, are durable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from strands import Agent
from strands.models import Model
from strands.multiagent.base import Status
from strands.multiagent.graph import Graph
from strands.multiagent.swarm import Swarm

import holdfast
from holdfast.adapters._shared import Policy, make_startable, require_name
from holdfast.adapters.strands import hooks
from holdfast.adapters.strands.agent import DurableAgent, Initial
from holdfast.adapters.strands.explain import explanation
from holdfast.adapters.strands.model import require_model
from holdfast.adapters.strands.options import OnOverflow, Options
from holdfast.adapters.strands.own import make_own
from holdfast.adapters.strands.support import require_supported
from holdfast.adapters.strands.teams import DurableGraph, DurableSwarm

A = TypeVar("A", Agent, Graph, Swarm)

__all__ = ["durable"]

_UNNAMED = ("Strands Agents", "default_graph", "default_swarm")  # what Strands calls them


def durable(
    agent: A,
    *,
    name: str | None = None,
    retry: holdfast.Retry | None = None,
    tools: holdfast.Retry | Mapping[str, holdfast.Retry] | None = None,
    models: Sequence[Model] = (),
    on_overflow: OnOverflow | None = None,
    approvals: bool = True,
    explain: bool = False,
) -> A:
    """The agent, graph or swarm itself, with all agents in it, whose calls in runs are steps.

    name: of its runs, if not its own. retry, tools: what to do when a call of a model or of a tool
    fails, instead of the engine's own policy; for tools also by their names. models: those to ask,
    in this order, when an agent's own has failed for good. on_overflow: is given the messages that
    were more than the model can read, and gives those to send instead, once. approvals: interrupts
    wait for their answers; False: the caller is asked, as without Holdfast. explain: print what
    will be journaled.
    """
    hooks.check()
    if not isinstance(agent, Agent | Graph | Swarm):
        raise TypeError(f"durable() takes an Agent, Graph or Swarm of Strands, not {agent!r}")
    for model in models:
        require_model(model)
    options = Options(
        policy=Policy(retry=retry, tools=tools),
        models=tuple(models),
        on_overflow=on_overflow,
        approvals=approvals,
    )
    reached: dict[int, Any] = {}
    _make_durable(agent, options, reached)
    known = _name(agent, name)
    if known is not None:
        make_startable(agent, _workflow(agent, known))
    if explain:
        print(explanation(known, list(reached.values()), options))
    return agent


def _make_durable(found: Any, options: Options, reached: dict[int, Any]) -> None:
    if id(found) in reached:
        return
    reached[id(found)] = found
    if isinstance(found, Agent):
        require_supported(found)
        make_own(found, DurableAgent, options, Initial.of(found))
        for tool in found.tool_registry.registry.values():
            if isinstance(tool, hooks.AgentAsTool):
                _make_durable(tool.agent, options, reached)
    elif isinstance(found, Graph | Swarm):
        if found.session_manager is not None:
            raise holdfast.Unsupported(
                f"{found.id!r} has a session_manager: a run journals what its nodes did by itself"
            )
        kind = DurableGraph if isinstance(found, Graph) else DurableSwarm
        make_own(found, kind, options, None)
        for node in found.nodes.values():
            _make_durable(node.executor, options, reached)


# Runs of their own


def _name(agent: Any, given: str | None) -> str | None:
    if given is not None:
        return require_name(agent, given)
    own = agent.name if isinstance(agent, Agent) else agent.id
    return None if own in _UNNAMED else require_name(agent, own)


def _workflow(agent: Any, name: str) -> holdfast.Workflow[Any, Any]:
    async def run(prompt: Any = None, invocation_state: Any = None) -> Any:
        given = {} if invocation_state is None else {"invocation_state": invocation_state}
        result = await agent.invoke_async(prompt, **given)
        return said(result) if isinstance(agent, Agent) else _said_by_all(result)

    output = getattr(agent, "_default_structured_output_model", None)
    run.__annotations__["return"] = (output or str) | Any  # what leads to the result's class
    return holdfast.workflow(name=name)(run)


def said(result: Any) -> Any:
    """What an agent has to say: its structured output, or its text."""
    if result.structured_output is not None:
        return result.structured_output
    return str(result).removesuffix("\n")


def _said_by_all(result: Any) -> dict[str, Any]:
    """What each node has to say."""
    if result.status == Status.FAILED:
        for node in result.results.values():
            if isinstance(node.result, Exception):
                raise node.result
        raise holdfast.Terminal(f"{result.status.value}: its limits were reached")
    return {name: _said_by(node.result) for name, node in result.results.items()}


def _said_by(result: Any) -> Any:
    return _said_by_all(result) if hasattr(result, "results") else said(result)
