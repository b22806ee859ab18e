"""Nodes of ADK's workflows: functions and tools that are nodes are steps.

Nodes that run other nodes or that are to run again when they get an answer (`rerun_on_resume`),
and those that yield, run again on replay: what they call is durable.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

from holdfast.adapters.google_adk import hooks
from holdfast.adapters.google_adk.options import Active, active
from holdfast.adapters.google_adk.tools import call_durably, function_result, step_of


def durable_functions(run: Callable[..., Any]) -> Callable[..., Any]:
    """Around what runs a node that is a function."""

    async def run_node(self: Any, *, ctx: Any, node_input: Any) -> AsyncIterator[Any]:
        now = active()
        node = self if now is None or _runs_again(self) else _function_node(now, self, ctx)
        async with contextlib.aclosing(run(node, ctx=ctx, node_input=node_input)) as items:
            async for item in items:
                yield item

    return run_node


def durable_tool_nodes(run: Callable[..., Any]) -> Callable[..., Any]:
    """Around what runs a node that is a tool."""

    async def run_node(self: Any, *, ctx: Any, node_input: Any) -> AsyncIterator[Any]:
        now = active()
        node = self if now is None else _tool_node(now, self)
        async with contextlib.aclosing(run(node, ctx=ctx, node_input=node_input)) as items:
            async for item in items:
                yield item

    return run_node


def _runs_again(node: Any) -> bool:
    function = node._unwrapped_func
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        return True
    return bool(node.rerun_on_resume)


def _function_node(now: Active, node: Any, ctx: Any) -> Any:
    function = node._func

    async def call(**given: Any) -> Any:
        return await step_of(
            now,
            node.name,
            ctx,
            lambda: hooks.invoke_callable(function, given, unwrapped=node._unwrapped_func),
            shown={k: v for k, v in given.items() if k != node._context_param_name},
            retry=now.options.policy.for_tool(node.name),
            returns=function_result(node._unwrapped_func),
        )

    made = copy.copy(node)
    made._func = made._unwrapped_func = call
    return made


def _tool_node(now: Active, node: Any) -> Any:
    tool, made = node.tool, copy.copy(node)

    async def call(*, args: dict[str, Any], tool_context: Any) -> Any:
        return await call_durably(
            now,
            tool,
            args,
            tool_context,
            lambda: tool.run_async(args=args, tool_context=tool_context),
            name=node.name,
        )

    made.tool = copy.copy(tool)
    made.tool.run_async = call
    return made
