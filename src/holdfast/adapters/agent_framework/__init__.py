"""Agents and workflows of the Microsoft Agent Framework.

    agent = durable(Agent(client, name="support", tools=[search]))

Inside a run each call of a model and each call of a tool is a step; see docs/adapters.md. The
framework's own loop runs as it is. Outside of runs the agent is what it was.

The code around those calls runs again on replay: middleware and context providers. What they do in
the world belongs into steps.
"""

from __future__ import annotations

import copy
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from agent_framework import (
    Agent,
    BaseAgent,
    BaseChatClient,
    FunctionalWorkflow,
    FunctionalWorkflowDefinition,
    Workflow,
    WorkflowAgent,
)

import holdfast
from holdfast.adapters._active import OPTIONS
from holdfast.adapters._shared import Policy, make_startable, require_name
from holdfast.adapters.agent_framework import agents, hooks, model, sessions, values, workflows
from holdfast.adapters.agent_framework import tools as tools_
from holdfast.adapters.agent_framework.active import OnOverflow, Options
from holdfast.adapters.agent_framework.explain import explanation

A = TypeVar("A", bound="Agent[Any] | Workflow")

__all__ = ["durable"]


def durable(
    agent: A,
    *,
    name: str | None = None,
    retry: holdfast.Retry | None = None,
    tools: holdfast.Retry | Mapping[str, holdfast.Retry] | None = None,
    models: Sequence[str | BaseChatClient[Any]] = (),
    on_overflow: OnOverflow | None = None,
    approvals: bool = True,
    explain: bool = False,
) -> A:
    """A copy whose calls are steps.

    name: of its runs, if not the agent's own. retry, tools: what to do when a call of a model or of
    a tool fails, instead of the engine's own policy; for tools also by their names. models: chat
    clients, or names for the agent's own client, to be asked in this order when its model has
    failed for good. on_overflow: is given the messages that were more than the model can read, and
    gives those to send instead, once. approvals: what needs somebody's answer waits for it; False:
    the caller is asked, as without Holdfast. explain: print what will be journaled.
    """
    hooks.check()
    if not isinstance(agent, Agent | Workflow):
        raise TypeError(
            f"durable() takes an Agent or a Workflow of the framework, not {agent!r}{_cure(agent)}"
        )
    _require_clients(agent, models)
    options = Options(
        policy=Policy(retry=retry, tools=tools),
        models=tuple(models),
        on_overflow=on_overflow,
        approvals=approvals,
    )
    model.install()
    tools_.install()
    agents.install()
    sessions.install()
    made: Any
    if isinstance(agent, Workflow):
        known = workflows.name_of(agent, name)
        made = workflows.durable_workflow(agent, options)
        run = _workflow_of_workflow(made, known)
    else:
        known = require_name(agent, name if name is not None else agent.name)
        agents.require_supported(agent)
        made = copy.copy(agent)
        made.context_providers = list(agent.context_providers)
        made.__dict__[OPTIONS] = options
        run = _workflow_of_agent(made, known)
    if explain:
        print(explanation(known, made, options))
    return make_startable(made, run)


def _cure(agent: object) -> str:
    if isinstance(agent, WorkflowAgent):
        return ": make its workflow durable, durable(workflow).as_agent()"
    if isinstance(agent, BaseAgent):
        return ": use an Agent, call this one in a holdfast.step, or let a durable workflow run it"
    if isinstance(agent, FunctionalWorkflow | FunctionalWorkflowDefinition):
        return ": make the function a holdfast.workflow, and the agents that it calls durable"
    return ""


def _require_clients(agent: Agent[Any] | Workflow, models: Sequence[object]) -> None:
    if isinstance(agent, Agent) and not isinstance(agent.client, BaseChatClient):
        raise holdfast.BadArguments(
            f"the calls of {agent.client!r} cannot be journaled: use a client that is an "
            "agent_framework.BaseChatClient, such as OpenAIChatClient, or derive yours from it"
        )
    for one in models:
        if not isinstance(one, str | BaseChatClient):
            raise holdfast.BadArguments(
                f"models={models!r}: names, or objects of agent_framework.BaseChatClient"
            )


def _workflow_of_agent(agent: Agent[Any], name: str) -> holdfast.Workflow[Any, Any]:
    wanted: Any = agent.default_options.get("response_format")

    async def run(messages: Any, session: Any = None) -> Any:
        response = await agent.run(messages, session=session)
        return response.value if wanted is not None else response.text

    if isinstance(wanted, type):
        run.__annotations__["return"] = typing.Union[wanted, Any]  # noqa: UP007
    return holdfast.workflow(name=name)(run)


def _workflow_of_workflow(workflow: Workflow, name: str) -> holdfast.Workflow[Any, Any]:
    async def run(message: Any) -> Any:
        return workflows.outputs_of(await workflow.run(message))

    classes = values.classes_in(workflow)
    run.__annotations__.update({"message": classes, "return": classes})
    return holdfast.workflow(name=name)(run)
