"""Calls of tools as steps, keyed by the id that the model gave to the call.

Only what the tool does is in the step. Its arguments are checked, its uses counted and its result
cached by CrewAI around it, on replay as well. What an agent says to another is no step: the other
agent's calls are, in a part of the crew that has the name of the call.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from crewai.agents.agent_executor import AgentExecutor
from crewai.agents.cache.cache_handler import CacheHandler
from crewai.tools.agent_tools.base_agent_tools import BaseAgentTool
from crewai.tools.base_tool import BaseTool, Tool
from crewai.tools.structured_tool import CrewStructuredTool
from crewai.tools.tool_failure import ToolFailure
from crewai.utilities.agent_utils import extract_tool_call_info
from crewai.utilities.string_utils import sanitize_tool_name
from pydantic import BaseModel

import holdfast
from holdfast.adapters.crewai import mcp
from holdfast.adapters.crewai.active import Active, active, call, entered, inside, on_runs_loop
from holdfast.adapters.crewai.values import plain

_MARK = "__holdfast_uses__"
_KIND = "__holdfast_kind__"


def install() -> None:
    if hasattr(BaseTool.run, _MARK):
        return
    for kind in (BaseTool, Tool):
        kind.run = _run(kind.run)  # type: ignore[method-assign]
    BaseTool.to_structured_tool = _to_structured_tool(  # type: ignore[method-assign]
        BaseTool.to_structured_tool
    )
    AgentExecutor._execute_single_native_tool_call = _native(  # type: ignore[method-assign]
        AgentExecutor._execute_single_native_tool_call
    )
    CacheHandler.read = _read(CacheHandler.read)  # type: ignore[method-assign]


def _run(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
        found = active()
        if found is None:
            return original(self, *args, **kwargs)
        # As CrewAI does it, but for the last line.
        if not args:
            kwargs = self._validate_kwargs(kwargs)
        spent = self._claim_usage()
        if spent is not None:
            return spent
        return _use(self, found, args, kwargs)

    setattr(run, _MARK, True)
    return run


def _to_structured_tool(original: Callable[..., Any]) -> Callable[..., Any]:
    """Models that cannot call tools natively are given tools in this form."""

    @functools.wraps(original)
    def to_structured_tool(self: BaseTool) -> CrewStructuredTool:
        made: CrewStructuredTool = original(self)
        plainly = made.func

        @functools.wraps(plainly)
        def func(*args: Any, **kwargs: Any) -> Any:
            found = active()
            return plainly(*args, **kwargs) if found is None else _use(self, found, args, kwargs)

        made.func = func
        return made

    return to_structured_tool


def _use(tool: BaseTool, found: Active, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = sanitize_tool_name(tool.name)
    what = f"{name}:{found.call_id}" if found.call_id else name
    if isinstance(tool, BaseAgentTool):
        with inside(found, what):
            return tool._run(*args, **kwargs)

    def work() -> Any:
        result = mcp.how_to_run(tool)(*args, **kwargs)
        return _kept(on_runs_loop(result) if asyncio.iscoroutine(result) else result)

    shown = {"args": plain(args), **plain(kwargs)} if args else plain(kwargs)
    try:
        kept = call(found, what, work, shown=shown, retry=_retry(found, tool.name, name))
    except holdfast.NotEncodable as error:
        raise holdfast.NotEncodable(
            f"{error}. Let the tool {tool.name!r} return plain data, or text"
        ) from error
    return _given(kept, tool)


def _kept(result: Any) -> Any:
    """Models have no durable form of their own, but the tool knows their class."""
    if isinstance(result, BaseModel):
        kind = "failure" if isinstance(result, ToolFailure) else "model"
        return {_KIND: kind, "value": result.model_dump(mode="json")}
    return result


def _given(kept: Any, tool: BaseTool) -> Any:
    if not isinstance(kept, dict) or _KIND not in kept:
        return kept
    kind = ToolFailure if kept[_KIND] == "failure" else tool.result_schema
    return kept["value"] if kind is None else kind.model_validate(kept["value"])


def _retry(found: Active, *names: str) -> holdfast.Retry | None:
    policies = (found.settings.policy.for_tool(name) for name in names)
    return next((policy for policy in policies if policy is not None), None)


def _native(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def execute(self: AgentExecutor, tool_call: Any) -> Any:
        found, info = active(), extract_tool_call_info(tool_call)
        if found is None or info is None:
            return original(self, tool_call)
        with entered(replace(found, call_id=info[0])):
            return original(self, tool_call)

    return execute


def _read(original: Callable[..., Any]) -> Callable[..., Any]:
    """Of two tools that are called at once with the same arguments, the second may find what the
    first returned, or not: on replay it finds the same."""

    @functools.wraps(original)
    def read(self: CacheHandler, tool: str, input: str) -> Any:
        found = active()
        if found is None or found.call_id is None:
            return original(self, tool, input)
        return call(found, f"cache:{found.call_id}", lambda: original(self, tool, input))

    return read


HOOKS = {
    "BaseTool.run": getattr(BaseTool, "run", None),
    "BaseTool._run": getattr(BaseTool, "_run", None),
    "BaseTool._validate_kwargs": getattr(BaseTool, "_validate_kwargs", None),
    "BaseTool._claim_usage": getattr(BaseTool, "_claim_usage", None),
    "BaseTool.to_structured_tool": getattr(BaseTool, "to_structured_tool", None),
    "CacheHandler.read": getattr(CacheHandler, "read", None),
    "AgentExecutor._execute_single_native_tool_call": getattr(
        AgentExecutor, "_execute_single_native_tool_call", None
    ),
}
