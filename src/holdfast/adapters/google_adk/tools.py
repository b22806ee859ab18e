"""Tools as steps, keyed by the model's id for the call.

ADK's handling of a tool's failure stays outside of its step: it sees one when the step's own tries
are used up. What a tool changes beside its result, the state and the other actions of its context,
is journaled with it and made again on replay. Agents and nodes that are used as tools are no steps:
their own calls are, and nest under the call. Neither are tools that only steer the agent.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Awaitable, Callable
from typing import Any

from google.adk.agents.llm.task._finish_task_tool import FinishTaskTool
from google.adk.auth.auth_credential import AuthCredential
from google.adk.events import Event, EventActions, RequestInput
from google.adk.tools import BaseTool, FunctionTool, ToolContext, TransferToAgentTool, exit_loop
from google.adk.tools.set_model_response_tool import SetModelResponseTool
from google.genai import types

import holdfast
from holdfast.adapters._shared import Place, as_step
from holdfast.adapters.google_adk import hooks, mcp
from holdfast.adapters.google_adk.options import Active, active, claim, enter

_RESULTS = (
    types.Part, types.FunctionResponse, types.Content, Event, RequestInput, AuthCredential,
)  # fmt: skip
_OF_NODES = ("route", "output", "event_author")
_STEERING = (TransferToAgentTool, SetModelResponseTool, FinishTaskTool)


def durable_tools(call_tool: Callable[..., Any]) -> Callable[..., Any]:
    """Around what calls a tool."""

    async def call(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> Any:
        now = active()
        if now is None:
            return await call_tool(tool, args=args, tool_context=tool_context)
        return await call_durably(
            now, tool, args, tool_context, lambda: call_tool(tool, args, tool_context)
        )

    return call


async def call_durably(
    now: Active,
    tool: BaseTool,
    args: dict[str, Any],
    context: ToolContext,
    work: Callable[[], Awaitable[Any]],
    *,
    name: str | None = None,
) -> Any:
    """`name`: of the call, if not made of the model's id for it."""
    name = name or f"{tool.name}:{context.function_call_id or 'call'}"
    if isinstance(tool, _STEERING) or getattr(tool, "func", None) is exit_loop:
        return await work()
    if _runs_nodes(tool, context):
        return await now.place.nearest().branch(name, _nested(now, work))
    is_mcp = mcp.is_tool(tool)
    try:
        return await step_of(
            now,
            name,
            context,
            (lambda: mcp.called(work)) if is_mcp else work,
            shown=args,
            retry=now.options.policy.for_tool(tool.name),
            returns=_result_type(tool),
        )
    except ConnectionError as error:
        if not is_mcp:
            raise
        return mcp.told(error)


async def step_of(
    now: Active,
    name: str,
    context: ToolContext,
    work: Callable[[], Awaitable[Any]],
    *,
    shown: Any,
    retry: holdfast.Retry | None,
    returns: Any,
) -> Any:
    """`work` as a step, with what it changes in its context."""
    executed = False
    before = _said(context)

    async def call() -> list[Any]:
        nonlocal executed
        executed = True
        result = await work()
        said = {name: value for name, value in _said(context).items() if value != before[name]}
        changed = [dict(context.actions.state_delta), _steered(context.actions)]
        return [result, *changed, said] if said else [result, *changed]

    classes: Any = (returns, *_RESULTS, Any)
    make = lambda: as_step(name, call, shown=shown, retry=retry, returns=list[classes])  # noqa: E731
    result, state, steered, *said = await claim(now, make)
    if not executed:
        _change_again(context, state, steered)
        for name, value in (said[0] if said else {}).items():
            setattr(context, name, value)
    return result


def _said(context: ToolContext) -> dict[str, Any]:
    """What a node says to the workflow that it is in, beside its result."""
    return {name: getattr(context, name) for name in _OF_NODES}


async def _nested(now: Active, work: Callable[[], Awaitable[Any]]) -> Any:
    enter(now, Place())
    return await work()


def no_nodes_in_steps(run_node: Callable[..., Any]) -> Callable[..., Any]:
    """Around `Context.run_node`."""

    async def run(self: Any, *args: Any, **named: Any) -> Any:
        now = active()
        if now is not None and not now.place.is_near:
            raise holdfast.Unsupported(
                "what a node says would be lost on replay if a tool runs it, which is a step: give "
                "the agent the node itself as a tool, or an AgentTool"
            )
        return await run_node(self, *args, **named)

    return run


def _runs_nodes(tool: BaseTool, context: ToolContext) -> bool:
    if isinstance(tool, hooks.AgentTool | hooks.NodeTool):
        return True
    return isinstance(tool, FunctionTool) and tool._should_run_generator_as_node(context)


def _steered(actions: EventActions) -> Any:
    # By alias: what a request for credentials holds is not read by its fields' own names.
    found = actions.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude={"state_delta"}
    )
    return {name: value for name, value in found.items() if value != {}}


def _change_again(context: ToolContext, state: dict[str, Any], steered: Any) -> None:
    actions = context.actions
    given = EventActions.model_validate_json(json.dumps(steered))
    for name in given.model_fields_set:
        setattr(actions, name, getattr(given, name))
    for key, value in state.items():
        context.state[key] = value


def _result_type(tool: BaseTool) -> Any:
    return function_result(getattr(tool, "func", None))


def function_result(function: Any) -> Any:
    """What a function says it returns."""
    try:
        return typing.get_type_hints(function).get("return", Any)
    except Exception:  # no function, or annotations that cannot be resolved
        return Any
