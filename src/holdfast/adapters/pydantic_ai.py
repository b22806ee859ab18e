"""Pydantic AI's agents.

    agent = durable(Agent("openai:gpt-5", name="researcher"))

Inside a run each request to a model and each call of a tool is a step; see docs/adapters.md. The
agent's own loop runs as it is, with Pydantic AI's interface for durable engines around its calls.
Outside of runs the agent is what it was.

The code around those calls runs again on replay: instructions, validators, output functions and
hooks. What they do in the world belongs into steps.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pydantic_ai
from pydantic_ai import _utils, durable_exec
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.models import Model, infer_model
from pydantic_ai.run import AgentRun

import holdfast
from holdfast.adapters._pydantic_ai import Durability, Options
from holdfast.adapters._pydantic_ai_mcp import HOOKS as OF_SERVERS
from holdfast.adapters._pydantic_ai_model import let_pieces_come_singly
from holdfast.adapters._shared import Policy, make_startable, require_hooks, require_name

A = TypeVar("A", bound=AbstractAgent[Any, Any])

TESTED = "2.62.0"


def durable(
    agent: A,
    *,
    name: str | None = None,
    retry: holdfast.Retry | None = None,
    tools: holdfast.Retry | Mapping[str, holdfast.Retry] | None = None,
    models: Sequence[Model | str] = (),
    on_overflow: Callable[[list[ModelMessage]], Any] | None = None,
    approvals: bool = True,
    explain: bool = False,
) -> A:
    """name: the agent's, if it has none or is to have another. retry, tools: what to do when a
    request to a model or a call of a tool fails; `tools` for all or by name. models: asked in
    order when the agent's own model has failed for good. on_overflow: is given the messages that
    were more than the model can read, and gives those to send instead, once. approvals: calls that
    need somebody's approval or are executed elsewhere wait for an answer; False: they go to the
    agent's caller, as they do without Holdfast. explain: print what will be journaled.
    """
    if not isinstance(agent, AbstractAgent):
        raise TypeError(f"durable() takes an agent of Pydantic AI, not {agent!r}")
    _check_hooks()
    let_pieces_come_singly()
    copied = copy.copy(agent)
    if name is not None:
        copied.name = name
    require_name(agent, copied.name)
    options = Options(
        policy=Policy(retry=retry, tools=tools),
        models=tuple(_model(model) for model in models),
        on_overflow=on_overflow,
        approvals=approvals,
    )
    copied.__class__ = _durable_kind(type(agent))
    copied.__dict__["_holdfast"] = options
    if explain:
        print("\n".join(_explanation(copied, options)))
    return make_startable(copied, _workflow(copied))


def _check_hooks() -> None:
    capability = getattr(durable_exec, "BaseDurabilityCapability", None)
    names = (
        "wrap_run",
        "wrap_model_request",
        "before_model_request",
        "get_wrapper_toolset",
        "handle_deferred_tool_calls",
        "_model_stream_event_handler",
        "_wrap_and_register_leaf",
        "_wrap_leaf_toolset",
        "_resolve_model_for_request",
        "_find_model_id",
        "_bind_capability_operations",
    )
    hooks = {f"BaseDurabilityCapability.{name}": getattr(capability, name, None) for name in names}
    backend = getattr(durable_exec, "JournalCallableOperationBackend", None)
    hooks["JournalCallableOperationBackend"] = backend
    hooks["Agent.iter"] = getattr(pydantic_ai.Agent, "iter", None)
    hooks["_utils.group_by_temporal"] = getattr(_utils, "group_by_temporal", None)
    require_hooks("pydantic-ai-slim", TESTED, {**hooks, **OF_SERVERS})


def _model(given: Model | str) -> Model:
    if isinstance(given, Model | str):
        return infer_model(given)
    raise holdfast.BadArguments(
        f"models=[{given!r}]: a model of Pydantic AI or its name, such as 'openai:gpt-5'"
    )


@functools.cache
def _durable_kind(kind: type[Any]) -> type[Any]:
    """The agent's own class, whose runs are journaled when they are a part of a run of Holdfast."""

    def durably(self: Any, given: Sequence[Any] | None) -> Sequence[Any] | None:
        if holdfast.current_run() is None or any(
            isinstance(one, Durability) for one in given or ()
        ):
            return given
        return [*(given or ()), Durability(self.name, self._holdfast)]

    @asynccontextmanager
    async def iter(
        self: Any, *args: Any, capabilities: Sequence[Any] | None = None, **options: Any
    ) -> AsyncIterator[AgentRun[Any, Any]]:
        given = durably(self, capabilities)
        async with kind.iter(self, *args, capabilities=given, **options) as run:
            yield run

    def run_stream_events(
        self: Any, *args: Any, capabilities: Sequence[Any] | None = None, **options: Any
    ) -> Any:
        # Now, and not in the task that it makes later.
        given = durably(self, capabilities)
        return kind.run_stream_events(self, *args, capabilities=given, **options)

    def run_sync(self: Any, *args: Any, **options: Any) -> Any:
        if holdfast.current_run() is None:
            return kind.run_sync(self, *args, **options)
        # A thread of a run: the agent goes on on the run's own event loop.
        return holdfast.race(run=self.run(*args, **options)).result()[1]

    def run_stream_sync(self: Any, *args: Any, **options: Any) -> Any:
        if holdfast.current_run() is None:
            return kind.run_stream_sync(self, *args, **options)
        raise holdfast.Unsupported(
            "run_stream_sync() has an event loop of its own, and a run cannot follow it there: use "
            "run_sync(), or run_stream() in an async workflow"
        )

    own = {
        "iter": iter,
        "run_stream_events": run_stream_events,
        "run_sync": run_sync,
        "run_stream_sync": run_stream_sync,
    }
    return type(kind.__name__, (kind,), own)


def _workflow(agent: Any) -> holdfast.Workflow[Any, Any]:
    async def run(user_prompt: Any = None, *, message_history: Any = None, deps: Any = None) -> Any:
        if message_history is not None:
            message_history = ModelMessagesTypeAdapter.validate_python(message_history)
        result = await agent.run(user_prompt, message_history=message_history, deps=deps)
        return result.output

    if isinstance(agent.output_type, type):
        run.__annotations__["return"] = agent.output_type
    if agent.deps_type not in (object, type(None)):
        run.__annotations__["deps"] = agent.deps_type | None
    return holdfast.Workflow(run, name=agent.name)


def _explanation(agent: Any, options: Options) -> list[str]:
    name = agent.name
    asked = [getattr(model, "model_name", model) for model in (agent.model, *options.models)]
    tools = sorted(tool for toolset in agent.toolsets for tool in getattr(toolset, "tools", ()))
    lines = [
        f"{name}: each request to a model ({', then '.join(map(str, asked))}) is a step "
        f"'{name}.model'",
        f"{name}: each call of a tool ({', '.join(tools) or 'none yet'}) is a step "
        f"'{name}.<tool>:<call id>', and steps in it are steps of their own",
        f"{name}: tools of MCP servers, and each look at them, are steps, in one session per run",
    ]
    if options.approvals:
        lines.append(f"{name}: deferred calls wait for an answer to '<tool>:<call id>'")
    return lines
