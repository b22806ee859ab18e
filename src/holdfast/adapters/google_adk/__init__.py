"""Google ADK: each call of a model and of a tool in a run is a step.

    agent = durable(LlmAgent(name="support", model="gemini-2.5-flash", tools=[search]))

Inside a workflow `Runner.run_async` and `run` are used as before and journal into its run;
`app.start(agent, "hello")` is a run of its own, whose result is the final answer. Outside of runs
nothing changes.

Not journaled: what callbacks, plugins and instructions do by themselves. They run again on replay;
steps that they call are durable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from google.adk.models import BaseLlm, LLMRegistry
from google.adk.runners import Runner
from google.adk.workflow import BaseNode

import holdfast
from holdfast.adapters._active import OPTIONS
from holdfast.adapters._shared import Policy, make_startable, require_name
from holdfast.adapters.google_adk import hooks
from holdfast.adapters.google_adk.auth import exchanged_once, same_requests
from holdfast.adapters.google_adk.code import wrap_executor
from holdfast.adapters.google_adk.explain import agents_in, explanation
from holdfast.adapters.google_adk.model import durable_models, durable_summaries
from holdfast.adapters.google_adk.nodes import durable_functions, durable_tool_nodes
from holdfast.adapters.google_adk.options import OnOverflow, Options
from holdfast.adapters.google_adk.runner import durable_runs, durable_sync_runs, no_live_runs
from holdfast.adapters.google_adk.start import workflow_of
from holdfast.adapters.google_adk.tools import durable_tools, no_nodes_in_steps
from holdfast.adapters.google_adk.waits import telling_why

A = TypeVar("A", bound=BaseNode | Runner)

__all__ = ["durable"]


def durable(
    agent: A,
    *,
    name: str | None = None,
    retry: holdfast.Retry | None = None,
    tools: holdfast.Retry | Mapping[str, holdfast.Retry] | None = None,
    models: Sequence[str | BaseLlm] = (),
    on_overflow: OnOverflow | None = None,
    approvals: bool = True,
    explain: bool = False,
) -> A:
    """The agent, workflow or runner itself, whose calls in runs are steps from now on; so are those
    of the agents below it.

    name: of its runs, if not the agent's own. retry, tools: what to do when a call of a model or of
    a tool fails, instead of the engine's own policy; for tools also by their names. models: those
    to ask, in this order, when the agent's own has failed for good. on_overflow: is given the
    contents that were more than the model can read, and gives those to send instead, once.
    approvals: calls that wait for people wait for them; False: the runner's caller is asked, as
    without Holdfast. explain: print what will be journaled.
    """
    hooks.check()
    root = agent.agent if isinstance(agent, Runner) else agent
    if not isinstance(root, BaseNode):
        raise TypeError(
            f"durable() takes an agent or a workflow of ADK, or a Runner, not {agent!r}"
        )
    known = require_name(agent, name if name is not None else root.name)
    options = Options(
        policy=Policy(retry=retry, tools=tools),
        models=tuple(_model(model) for model in models),
        on_overflow=on_overflow,
        approvals=approvals,
    )
    _install()
    for one in agents_in(root):
        wrap_executor(one)
    object.__setattr__(root, OPTIONS, options)
    if explain:
        print(explanation(known, root, options))
    return make_startable(agent, workflow_of(agent, known))


def _model(given: str | BaseLlm) -> BaseLlm:
    if isinstance(given, str):
        return LLMRegistry.new_llm(given)
    if isinstance(given, BaseLlm):
        return given
    raise holdfast.BadArguments(
        f"models=[{given!r}]: a model of ADK or its name, such as 'gemini-2.5-flash'"
    )


def _install() -> None:
    hooks.wrap("google.adk.runners:Runner.run_async", durable_runs)
    hooks.wrap("google.adk.runners:Runner.run", durable_sync_runs)
    hooks.wrap("google.adk.runners:Runner.run_live", no_live_runs)
    hooks.wrap(f"{hooks.SUMMARIZER}.maybe_summarize_events", durable_summaries)
    hooks.wrap("google.adk.flows.llm_flows.base_llm_flow:BaseLlmFlow._get_llm", durable_models)
    hooks.wrap("google.adk.flows.llm_flows.tools._caller:_call_tool_async", durable_tools)
    hooks.wrap("google.adk.flows.llm_flows.tools._caller:apply_confirmation_gate", telling_why)
    hooks.wrap("google.adk.agents.context:Context.run_node", no_nodes_in_steps)
    hooks.wrap("google.adk.workflow._function_node:FunctionNode._run_impl", durable_functions)
    hooks.wrap("google.adk.workflow._tool_node:_ToolNode._run_impl", durable_tool_nodes)
    hooks.wrap("google.adk.auth.auth_handler:AuthHandler.generate_auth_request", same_requests)
    hooks.wrap(f"{hooks.EXCHANGER}:OAuth2CredentialExchanger.exchange", exchanged_once)
