"""Calls that the SDK makes in tasks of its own: in a run they are made in branches of the agent's,
so that what they call in turn is named by names that you gave, and not by the SDK's."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from agents import InputGuardrail, OutputGuardrail
from agents.run_internal import tool_execution

from holdfast.adapters.openai_agents.options import active, place

G = TypeVar("G", bound=InputGuardrail[Any] | OutputGuardrail[Any])

_DURABLE = "_holdfast_durable"
_INVOKE = "_invoke_function_tool_with_metadata"


def durable_guardrail(guardrail: G) -> G:
    """Agents that it runs are under `guardrail:<name>`."""
    if _DURABLE in vars(guardrail):
        return guardrail
    check: Any = guardrail.guardrail_function

    async def checked(*given: Any) -> Any:
        found = check(*given)
        return await found if inspect.isawaitable(found) else found

    @functools.wraps(check)
    async def call(*given: Any) -> Any:
        if active() is None:
            return await checked(*given)
        return await place().branch(f"guardrail:{guardrail.get_name()}", checked(*given))

    made = copy.copy(guardrail)
    made.guardrail_function = call
    made.__dict__[_DURABLE] = True
    return made


def install_time_outs() -> None:
    """A tool's time-out is a durable timer."""
    invoke = getattr(tool_execution, _INVOKE)
    if not hasattr(invoke, "__wrapped__"):
        setattr(tool_execution, _INVOKE, _timed(invoke))


def _timed(invoke: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(invoke)
    async def call(*, function_tool: Any, context: Any, arguments: str) -> Any:
        calling = invoke(function_tool=function_tool, context=context, arguments=arguments)
        if active() is None or function_tool.timeout_seconds is None:
            return await calling
        name = f"{function_tool.name}:{context.tool_call_id}"
        return await place().branch(f"{name}:timeout", calling)

    return call
