"""Tools as steps, named by the tool and the model's id for the call.

A failure is seen by Strands when the step's own tries are used up. Agents that are used as tools
are no steps: their own calls are, and nest under the call. What only steers the agent (a handoff,
structured output) is no step either, and is done again on replay.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from strands.interrupt import Interrupt, InterruptException
from strands.types.tools import AgentTool

from holdfast.adapters._relay import Relay
from holdfast.adapters._shared import NOT_FOR_THE_MODEL, Place, as_step
from holdfast.adapters.strands import hooks, mcp
from holdfast.adapters.strands.changes import Changes, is_plain
from holdfast.adapters.strands.options import Around, Options, within

_STEERS = "__holdfast_steers__"
_TOLD = "holdfast_told"  # on an error: what Strands would tell the model


class DurableTool(AgentTool):
    """Stands in for a tool for one call of it in a run."""

    def __init__(self, inner: AgentTool, agent: Any, place: Place, options: Options) -> None:
        super().__init__()
        self._inner, self._agent, self._place, self._options = inner, agent, place, options

    @property
    def tool_name(self) -> str:
        return self._inner.tool_name

    @property
    def tool_spec(self) -> Any:
        return self._inner.tool_spec

    @property
    def tool_type(self) -> str:
        return self._inner.tool_type

    async def stream(
        self, tool_use: Any, invocation_state: dict[str, Any], **named: Any
    ) -> AsyncGenerator[Any, None]:
        name = f"{tool_use['name']}:{tool_use['toolUseId']}"
        events: Any
        if isinstance(self._inner, hooks.AgentAsTool):
            inner: Any = self._inner.stream(tool_use, invocation_state, **named)
            events = within(Around(self._place, lambda _: name), inner)
        elif only_steers(self._inner):
            events = self._steered(name, tool_use, invocation_state, named)
        else:
            events = self._step(name, tool_use, invocation_state, named)
        async with contextlib.aclosing(events) as found:
            async for event in found:
                yield event

    async def _steered(
        self, name: str, tool_use: Any, invocation_state: dict[str, Any], named: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        async def collected() -> list[Any]:
            return [
                event async for event in self._inner.stream(tool_use, invocation_state, **named)
            ]

        for event in await self._place.branch(name, collected()):
            yield event

    async def _step(
        self, name: str, tool_use: Any, invocation_state: dict[str, Any], named: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        live: Relay[Any] = Relay()
        changes = Changes(self._agent, invocation_state)

        async def work() -> Any:
            with changes.noted():
                async with mcp.reached(self._inner) as inner:
                    events = inner.stream(tool_use, invocation_state, **named)
                    done = await _outcome(events, live, changes)
                # Also by tries that failed: who reads it was told.
                streamed = {"streamed": live.recorded} if live.recorded else {}
                return {**done, **streamed, **changes.found()}

        retry = self._options.policy.for_tool(tool_use["name"])
        step = self._place.claim(
            lambda: as_step(name, work, shown=tool_use.get("input"), retry=retry)
        )
        call = asyncio.ensure_future(step)
        reading = live.read(call, lambda done: done.get("streamed", ()), cancels=True)
        try:
            async with contextlib.aclosing(reading):
                async for data in reading:
                    yield hooks.ToolStreamEvent(tool_use, data)
            done = call.result()
        except NOT_FOR_THE_MODEL as error:
            # Strands tells the model of any error; its next call is where this one is raised.
            self._agent._holdfast_failure = error
            raise
        except Exception as error:
            told = vars(error).get(_TOLD)
            if told is None:
                raise
            changes.make_again(told)
            yield hooks.ToolResultEvent(told["result"], exception=error)
            return
        changes.make_again(done)
        if "interrupts" in done:
            asked = [Interrupt(**interrupt) for interrupt in done["interrupts"]]
            yield hooks.ToolInterruptEvent(tool_use, asked)
        else:
            yield hooks.ToolResultEvent(done["result"])


async def _outcome(events: Any, live: Relay[Any], changes: Changes) -> dict[str, Any]:
    """In the step: what came of the tool."""
    result: Any = None
    try:
        async for event in events:
            if isinstance(event, hooks.ToolInterruptEvent):
                return {"interrupts": [one.to_dict() for one in event.interrupts]}
            if isinstance(event, hooks.ToolResultEvent):
                if event.exception is not None:
                    _raise(event, changes)
                result = event.tool_result
                break
            data = event
            if isinstance(event, hooks.ToolStreamEvent):
                data = event["tool_stream_event"]["data"]
            result = data  # of tools that know no ToolResultEvent, the last one
            live.recorded.append(data if is_plain(data) else repr(data))
            live.hand_on(data)
    except InterruptException as stop:
        return {"interrupts": [stop.interrupt.to_dict()]}
    return {"result": result}


def _raise(event: Any, changes: Changes) -> None:
    error = event.exception
    with contextlib.suppress(AttributeError, TypeError):
        setattr(error, _TOLD, {"result": event.tool_result, **changes.found()})
    raise error


def only_steers(tool: AgentTool) -> bool:
    if tool.tool_type == "structured_output":
        return True
    behind: Any = getattr(tool, "_tool_func", None)
    if getattr(behind, _STEERS, False):
        return True
    if not getattr(behind, "__qualname__", "").startswith("Swarm._create_handoff_tool."):
        return False
    behind.__qualname__ = behind.__name__  # Strands calls it in a thread, whose key has it
    setattr(behind, _STEERS, True)
    return True
