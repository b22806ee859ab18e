"""Calls of tools as steps.

Whoever calls a tool of the framework calls `FunctionTool.invoke`, with the id that the model gave
to the call. Middleware for functions is outside of it, and runs again on replay: so do the tools
that only steer (handoffs), which middleware answers.
"""

from __future__ import annotations

import contextlib
import functools
import typing
from collections.abc import Callable, Iterator
from typing import Any

from agent_framework import Content, FunctionTool, MiddlewareFailure, MiddlewareTermination
from agent_framework.exceptions import ToolException, UserInputRequiredException

import holdfast
from holdfast.adapters._shared import as_step
from holdfast.adapters.agent_framework import values
from holdfast.adapters.agent_framework.active import Active, active, place
from holdfast.adapters.agent_framework.state import ToolState

_STEERING = (UserInputRequiredException, MiddlewareFailure, MiddlewareTermination)
"""These are no failures: trying again would not help."""


def install() -> None:
    original = FunctionTool.invoke
    if not hasattr(original, "__wrapped__"):
        setattr(FunctionTool, "invoke", _as_step(original))  # noqa: B010


def _as_step(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def invoke(self: FunctionTool, **named: Any) -> Any:
        now = active()
        if now is None:
            return await original(self, **named)
        try:
            return await _step(self, now, named, lambda: original(self, **named))
        except holdfast.HoldfastError as error:
            if isinstance(error, holdfast.Terminal | holdfast.StepFailed | holdfast.StepTimedOut):
                raise
            # A mistake in the program: told to the model as a tool's failure, nobody would see it.
            raise MiddlewareFailure(str(error)) from error

    return invoke


async def _step(
    tool: FunctionTool, now: Active, named: dict[str, Any], call: Callable[[], Any]
) -> Any:
    context = named.get("context")
    call_id = named.get("tool_call_id")
    state, limits = ToolState(context, now.session), Limits(tool)

    async def work() -> dict[str, Any]:
        state.begin()
        limits.begin()
        offered = list(context.tools) if context is not None and context.tools else []
        try:
            done: dict[str, Any] = {"value": _without_raw(await call())}
        except _STEERING as steering:
            done = {"raised": steering}
        except ToolException as error:
            limits.refuse_if_reached(error)
            raise
        _refuse_new_tools(tool, offered, context)
        if changes := state.changes():
            done["changed"] = changes
        return done

    arguments = named.get("arguments")
    given = arguments if arguments is not None else getattr(context, "arguments", None)
    name = f"{now.name}.{tool.name}"
    result: Any = _result_type(tool)
    step = place().claim(
        lambda: as_step(
            f"{name}:{call_id}" if call_id else name,
            work,
            shown=values.shown(given),
            retry=now.options.policy.for_tool(tool.name),
            returns=dict[str, result | Any],
        )
    )
    with limits.counted():
        done = await step
    state.make_again(done.get("changed", {}))
    if "raised" in done:
        raise done["raised"]
    return done["value"]


class LimitReached(holdfast.Terminal, ToolException):
    """A tool may not be called any more: trying again would not help."""


class Limits:
    """How often a tool was called, and failed. Each call counts once, however often it is tried,
    and when it is replayed."""

    def __init__(self, tool: FunctionTool) -> None:
        self._tool, self._tries, self._reached = tool, 0, False

    def begin(self) -> None:
        tool = self._tool
        if self._tries:
            tool.invocation_count -= 1
            tool.invocation_exception_count -= 1
        self._tries += 1
        limits = (tool.max_invocations, tool.max_invocation_exceptions)
        counts = (tool.invocation_count, tool.invocation_exception_count)
        self._reached = any(
            limit is not None and count >= limit
            for limit, count in zip(limits, counts, strict=True)
        )

    def refuse_if_reached(self, error: ToolException) -> None:
        if self._reached:
            raise LimitReached(str(error)) from error

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Around the step."""
        failed = 1
        try:
            yield
            failed = 0
        except LimitReached:
            self._tries = 1  # it was not called
            raise
        finally:
            if not self._tries:
                self._tool.invocation_count += 1
                self._tool.invocation_exception_count += failed


def _without_raw(result: Any) -> Any:
    if isinstance(result, list):
        for item in result:
            if isinstance(item, Content):
                values.without_raw(item)
    return result


def _result_type(tool: FunctionTool) -> Any:
    """What the function behind the tool says it returns."""
    try:
        return typing.get_type_hints(tool.func).get("return", Any)
    except Exception:  # no function, or annotations that cannot be resolved
        return Any


def _refuse_new_tools(tool: FunctionTool, offered: list[Any], context: Any) -> None:
    after = list(context.tools) if context is not None and context.tools else []
    if [id(one) for one in after] != [id(one) for one in offered]:
        raise holdfast.Unsupported(
            f"the tool {tool.name!r} adds or removes tools, and on replay it is not called again: "
            "give the agent all its tools from the start, or change them in middleware"
        )
