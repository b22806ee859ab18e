"""Tools as steps, keyed by the model's id for the call.

A tool's failure handling stays outside of its step: it sees a failure when the step's own tries are
used up. What a tool changes beside its result is journaled with it and made again on replay; see
state.py. Agents that are used as tools are no steps: their own calls are, and nest under the call.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import sys
import typing
from collections.abc import Awaitable, Callable
from typing import Any

from agents import (
    Agent,
    ApplyPatchTool,
    ComputerTool,
    CustomTool,
    FunctionTool,
    InputGuardrailTripwireTriggered,
    LocalShellTool,
    MaxTurnsExceeded,
    ModelBehaviorError,
    OutputGuardrailTripwireTriggered,
    ShellTool,
    Tool,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
)
from agents.tool import ShellResult
from agents.tool_context import ToolContext

import holdfast
from holdfast.adapters._shared import NOT_FOR_THE_MODEL, as_step
from holdfast.adapters.openai_agents import hooks
from holdfast.adapters.openai_agents.options import Options, place
from holdfast.adapters.openai_agents.state import ToolState

Invoke = Callable[[Any, Any], Awaitable[Any]]

_SAID_BY_SDK = (
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelBehaviorError,
    OutputGuardrailTripwireTriggered,
)
_ORIGINAL = "_holdfast_original"
_OUTPUTS = (ToolOutputText, ToolOutputImage, ToolOutputFileContent, ShellResult)


def durable_tool(tool: Tool, options: Options) -> Tool:
    """A copy of a tool whose calls in runs are steps; of one that a server executes, itself."""
    if isinstance(tool, FunctionTool):
        return _function_tool(tool, options)
    if isinstance(tool, CustomTool):
        return _replaced(tool, "on_invoke_tool", options)
    if isinstance(tool, ShellTool | LocalShellTool) and tool.executor is not None:
        return _replaced(tool, "executor", options)
    return tool


def refuse_if_undurable(tool: Tool) -> None:
    if isinstance(tool, ComputerTool | ApplyPatchTool):
        raise holdfast.Unsupported(
            f"the calls of {type(tool).__name__} cannot be journaled yet: wrap what it does in a "
            "function_tool, or leave it out of a durable agent"
        )


def is_in_sandbox(agent: Agent[Any]) -> bool:
    found = sys.modules.get("agents.sandbox.sandbox_agent")
    return found is not None and isinstance(agent, found.SandboxAgent)


def refuse_sandbox(agent: Agent[Any]) -> None:
    if is_in_sandbox(agent):
        raise holdfast.Unsupported(
            f"{agent.name!r} is a SandboxAgent: the sandbox in which it has worked is gone when "
            "its process dies, and a run would go on in an empty one. Run it in a tool, or in a "
            "holdfast.step, which does all of it again"
        )


def _function_tool(tool: FunctionTool, options: Options) -> FunctionTool:
    before, original = tool.__dict__.get(_ORIGINAL, (None, tool))
    if before is options:
        return tool
    made = copy.copy(original)
    made.__dict__[_ORIGINAL] = (options, original)
    invoker = made.on_invoke_tool
    if isinstance(invoker, hooks.Invoker):
        impl = _as_steps(invoker._invoke_tool_impl, made, options)
        durable = _Invoker(impl, invoker._on_handled_error, function_tool=made)
        # How the SDK marks sync functions, among others.
        durable.__dict__.update({k: v for k, v in vars(invoker).items() if k.startswith("__")})
        made.on_invoke_tool = durable
    else:
        made.on_invoke_tool = _as_steps(invoker, made, options)
    return made


class _Invoker(hooks.Invoker):
    """Lets the SDK handle the failures of a tool, but not those of the program around it."""

    async def __call__(self, ctx: ToolContext[Any], input: str) -> Any:
        try:
            return await self._invoke_tool_impl(ctx, input)
        except NOT_FOR_THE_MODEL:
            raise
        except Exception as error:
            failure = error

        async def failed(ctx: ToolContext[Any], input: str) -> Any:
            raise failure

        handle = hooks.Invoker(failed, self._on_handled_error, function_tool=self._function_tool)
        return await handle(ctx, input)


def _as_steps(invoke: Invoke, tool: Any, options: Options) -> Invoke:
    returns = _result_type(tool)

    @functools.wraps(invoke)
    async def call(ctx: Any, given: Any) -> Any:
        if holdfast.current_run() is None:
            return await invoke(ctx, given)
        call_id = getattr(ctx, "tool_call_id", None) or "call"
        if getattr(tool, "_is_agent_tool", False):
            return await place().branch(f"{tool.name}:{call_id}", _called(invoke, ctx, given))
        return await place().branch(call_id, step(ctx, given))

    async def step(ctx: Any, given: Any) -> Any:
        state = ToolState(ctx)

        async def work() -> Any:
            with state.watched():
                return [await invoke(ctx, given), *state.changes()]

        classes: Any = (returns, *_OUTPUTS, *state.types(), Any)
        output, *changes = await as_step(
            tool.name,
            work,
            shown=_shown(given),
            retry=_policy(options, tool.name),
            returns=list[classes],
        )
        state.make_again(changes)
        return output

    return call


def _policy(options: Options, tool: str) -> holdfast.Retry:
    """What the SDK says of a call, such as that the model's arguments are wrong, stays true."""
    found = options.policy.for_tool(tool) or holdfast.Retry()
    return dataclasses.replace(found, give_up_on=(*found.give_up_on, *_SAID_BY_SDK))


async def _called(invoke: Invoke, ctx: Any, given: Any) -> Any:
    return await invoke(ctx, given)


def _shown(given: Any) -> Any:
    if not isinstance(given, str):
        return None
    try:
        return json.loads(given)
    except ValueError:
        return given


def _result_type(tool: Any) -> Any:
    """What the function behind the tool says it returns."""
    try:
        return typing.get_type_hints(tool.__wrapped__).get("return", Any)
    except Exception:  # no function, or annotations that cannot be resolved
        return Any


def _replaced(tool: Any, where: str, options: Options) -> Any:
    """For tools whose calls are plain functions of one or two arguments."""
    before, original = tool.__dict__.get(_ORIGINAL, (None, tool))
    if before is options:
        return tool
    tool = original
    invoke = getattr(tool, where)
    made = copy.copy(tool)
    made.__dict__[_ORIGINAL] = (options, tool)
    if isinstance(tool, CustomTool):
        made.on_invoke_tool = _as_steps(invoke, made, options)
        return made

    async def execute(request: Any) -> Any:
        if holdfast.current_run() is None:
            return await _awaited(invoke(request))
        call = request.data
        call_id = getattr(call, "call_id", None) or "call"
        return await place().branch(call_id, step(request))

    async def step(request: Any) -> Any:
        retry = options.policy.for_tool(tool.name)
        return await as_step(
            tool.name, lambda: _awaited(invoke(request)), retry=retry, returns=str | ShellResult
        )

    made.executor = execute
    return made


async def _awaited(value: Any) -> Any:
    return await value if isinstance(value, Awaitable) else value
