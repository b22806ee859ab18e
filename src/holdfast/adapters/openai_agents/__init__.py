"""OpenAI Agents SDK: each call of a model and of a tool in a run is a step.

    agent = durable(Agent(name="support", tools=[search]))

Inside a workflow `Runner.run`, `run_streamed` and `run_sync` are used as before and journal into
its run; `app.start(agent, "hello")` is a run of its own, whose result is the final output. Outside
of runs nothing changes.

Not journaled: what guardrails, hooks, instructions and handoff callbacks do by themselves. They run
again on replay; agents that they run, and steps that they call, are durable.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from agents import Agent, Model, Runner

import holdfast
from holdfast.adapters._shared import Policy, make_startable, require_name
from holdfast.adapters.openai_agents import hooks
from holdfast.adapters.openai_agents.copies import Copies, durable_copy
from holdfast.adapters.openai_agents.explain import explanation
from holdfast.adapters.openai_agents.options import OnOverflow, Options
from holdfast.adapters.openai_agents.runner import install

A = TypeVar("A", bound=Agent[Any])

__all__ = ["durable"]


def durable(
    agent: A,
    *,
    name: str | None = None,
    retry: holdfast.Retry | None = None,
    tools: holdfast.Retry | Mapping[str, holdfast.Retry] | None = None,
    models: Sequence[str | Model] = (),
    on_overflow: OnOverflow | None = None,
    approvals: bool = True,
    explain: bool = False,
) -> A:
    """A copy of the agent, and of those that it hands off to, whose calls are steps.

    name: of its runs, if not the agent's own. retry, tools: what to do when a call of a model or of
    a tool fails, instead of the engine's own policy; for tools also by their names. models: those
    to ask, in this order, when the agent's own has failed for good. on_overflow: is given the input
    that was more than the model can read, and gives the one to send instead, once. approvals: calls
    that need somebody's approval wait for it; False: the run's caller is asked, as without
    Holdfast. explain: print what will be journaled.
    """
    hooks.check()
    if not isinstance(agent, Agent):
        raise TypeError(f"durable() takes an agents.Agent, not {agent!r}")
    for model in models:
        if not isinstance(model, str | Model):
            raise holdfast.BadArguments(f"models={models!r}: names, or objects of agents.Model")
    known = require_name(agent, name if name is not None else agent.name)
    policy = Policy(retry=retry, tools=tools)
    options = Options(
        policy=policy, models=tuple(models), on_overflow=on_overflow, approvals=approvals
    )
    install()
    copies: Copies = {}
    made = durable_copy(agent, options, copies)
    reached = [copied for _, copied in copies.values()]
    make_startable(made, _workflow(made, known, reached))
    if explain:
        print(explanation(known, reached, options))
    return made


def _workflow(agent: A, name: str, reached: list[Agent[Any]]) -> holdfast.Workflow[Any, Any]:
    async def run(input: Any, context: Any = None, max_turns: int | None = 10) -> Any:
        result = await Runner.run(agent, input, context=context, max_turns=max_turns)
        return result.final_output

    # What leads to the classes of the values.
    run.__annotations__["context"] = _context_type(agent)
    outputs = tuple(_output_type(one) for one in reached)
    run.__annotations__["return"] = typing.Union[(*outputs, Any)]
    return holdfast.workflow(name=name)(run)


def _output_type(agent: Agent[Any]) -> Any:
    given = agent.output_type
    return getattr(given, "output_type", given) if given is not None else str


def _context_type(agent: Agent[Any]) -> Any:
    """Of an `Agent[Context](...)`, Context."""
    known = typing.get_args(getattr(agent, "__orig_class__", None))
    return known[0] | None if known and isinstance(known[0], type) else Any
