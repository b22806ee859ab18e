"""Calls of tools as steps, keyed by the id that the model gave to the call."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, Tool, ToolException

import holdfast
from holdfast.adapters._langgraph_active import Active, active, call, call_in_thread, inside
from holdfast.adapters._langgraph_interrupts import answered, answered_in_thread, ask_caller
from holdfast.adapters._shared import Place

_OF_FUNCTIONS = (StructuredTool, Tool)
# What a tool says with it is meant for the model.
_DEFAULT = holdfast.Retry(give_up_on=(ToolException,))


def install() -> None:
    if not hasattr(BaseTool.arun, "__wrapped__"):
        BaseTool.arun = _arun(BaseTool.arun)  # type: ignore[method-assign]
        BaseTool.run = _run(BaseTool.run)  # type: ignore[method-assign]


def _arun(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def arun(self: BaseTool, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        found = active()
        call_id = kwargs.get("tool_call_id")
        if found is None or not _is_valid(self, tool_input, call_id):
            return await original(self, tool_input, *args, **kwargs)

        async def once(config: Any) -> Any:
            tool = placed(self)
            return await original(tool, tool_input, *args, **{**kwargs, "config": config})

        async def work() -> Any:
            with inside(found):
                return await answered(call_id or self.name, kwargs.get("config"), once)

        shown, retry = _shown(self, tool_input), _retry(self, found)
        place = found.place if call_id else Place()
        name = _name(self, call_id)
        return ask_caller(await call(name, work, shown=shown, retry=retry, place=place))

    return arun


def _run(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(self: BaseTool, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        found = active()
        call_id = kwargs.get("tool_call_id")
        if found is None or not _is_valid(self, tool_input, call_id):
            return original(self, tool_input, *args, **kwargs)

        def once(config: Any) -> Any:
            return original(self, tool_input, *args, **{**kwargs, "config": config})

        def work() -> Any:
            with inside(found):
                return answered_in_thread(call_id or self.name, kwargs.get("config"), once)

        shown, retry = _shown(self, tool_input), _retry(self, found)
        name = _name(self, call_id)
        with found.place.entered() if call_id else contextlib.nullcontext():
            return ask_caller(call_in_thread(name, work, shown=shown, retry=retry))

    return run


def placed(tool: BaseTool) -> BaseTool:
    """LangChain calls tools in tasks and threads of its own; what they call belongs to the step."""
    copied: Any = copy.copy(tool)
    names = ("func", "coroutine") if isinstance(tool, _OF_FUNCTIONS) else ("_run", "_arun")
    for name in names:
        function = getattr(tool, name, None)
        if function is not None and not (name == "_arun" and type(tool)._arun is BaseTool._arun):
            copied.__dict__[name] = _entering(function, Place())
    made: BaseTool = copied
    return made


def _entering(function: Callable[..., Any], place: Place) -> Callable[..., Any]:
    @functools.wraps(function)
    def entering(*args: Any, **kwargs: Any) -> Any:
        with place.entered():
            return function(*args, **kwargs)

    @functools.wraps(function)
    async def entering_async(*args: Any, **kwargs: Any) -> Any:
        with place.entered():
            return await function(*args, **kwargs)

    return entering_async if inspect.iscoroutinefunction(function) else entering


def _is_valid(tool: BaseTool, tool_input: Any, call_id: str | None) -> bool:
    """What does not fit the tool's schema is no call of it. LangChain tells the model so, by an
    error that could not be rebuilt from the journal."""
    try:
        tool._to_args_and_kwargs(_copied(tool_input), call_id)
    except Exception:
        return False
    return True


def _copied(tool_input: Any) -> Any:
    return dict(tool_input) if isinstance(tool_input, dict) else tool_input


def _name(tool: BaseTool, call_id: str | None) -> str:
    return f"{tool.name}:{call_id}" if call_id else tool.name


def _shown(tool: BaseTool, tool_input: Any) -> Any:
    """What the model said. Injected arguments (the state, the runtime) are LangGraph's."""
    if isinstance(tool_input, dict):
        return dict(tool._filter_injected_args(tool_input))
    return tool_input


def _retry(tool: BaseTool, found: Active) -> holdfast.Retry:
    return found.settings.policy.for_tool(tool.name) or _DEFAULT
