"""MCP servers: what tools they have is a step of the run, and so is each call of one.

ADK keeps the sessions of a toolset in a manager; in a run that is one of its own. A session that is
opened in a run is not part of the step that needed it, but goes on until the run leaves memory.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.adapters._mcp import SessionLost, is_lost, of_run
from holdfast.adapters._shared import as_step
from holdfast.adapters.google_adk import hooks
from holdfast.adapters.google_adk.options import Active, active, claim

_TOOLSETS = "google.adk.tools.mcp_tool.mcp_toolset"
_SESSIONS = "google.adk.tools.mcp_tool.mcp_session_manager"
_TOOLS = "google.adk.tools.mcp_tool.mcp_tool"

_losses: contextvars.ContextVar[list[Exception] | None] = contextvars.ContextVar(
    "holdfast_google_adk_mcp", default=None
)


def install() -> None:
    """If somebody uses MCP: to import it takes its time."""
    if _TOOLSETS in sys.modules:
        hooks.wrap(f"{_TOOLSETS}:McpToolset.get_tools_with_prefix", durable_listings)
        hooks.wrap(f"{_SESSIONS}:MCPSessionManager.create_session", sessions_outside)
        hooks.wrap(f"{_TOOLS}:McpTool._run_async_impl", told_of_losses)


def durable_listings(get_tools: Callable[..., Any]) -> Callable[..., Any]:
    """Around what asks a server for its tools."""

    async def get(self: Any, readonly_context: Any = None) -> Any:
        now = active()
        if now is None:
            return await get_tools(self, readonly_context)
        # Once in an invocation, as ADK does. Its own memory of that is the process's: whether it
        # asks would depend on who else has asked since.
        invocation = getattr(readonly_context, "invocation_id", "")
        known = now.listings.get((id(self), invocation))
        if known is None:
            known = await get_tools(_journaled(now, self), readonly_context)
            now.listings[id(self), invocation] = known
        return known

    return get


def _journaled(now: Active, toolset: Any) -> Any:
    listing = sys.modules[_TOOLSETS].ListToolsResult
    made = object.__new__(type(toolset))
    made.__dict__.update(toolset.__dict__)
    ask = made._execute_with_session

    async def asked(*args: Any, **named: Any) -> Any:
        async def work() -> Any:
            found = await ask(*args, **named)
            return found.model_dump(mode="json", by_alias=True, exclude_none=True)

        retry = now.options.policy.for_tool("mcp.list_tools")
        recorded = await claim(now, lambda: as_step("mcp.list_tools", work, retry=retry))
        return listing.model_validate(recorded)

    made._mcp_session_manager = _manager(toolset._mcp_session_manager)
    made._use_invocation_cache = False
    made._read_tool_list_cache = lambda key: None
    made._execute_with_session = asked
    return made


def _manager(managed: Any) -> Any:
    """The run's own; the tools of the listing call by it."""

    def make() -> Any:
        made = copy.copy(managed)  # without sessions
        made._errlog = managed._errlog
        return made

    return of_run(managed, make, lambda made: made.close())


def sessions_outside(create: Callable[..., Any]) -> Callable[..., Any]:
    """Around what opens a session."""

    async def create_session(self: Any, *args: Any, **named: Any) -> Any:
        if active() is None:
            return await create(self, *args, **named)
        loop = asyncio.get_running_loop()
        work = create(self, *args, **named)
        return await contextvars.Context().run(lambda: loop.create_task(work))

    return create_session


def told_of_losses(run: Callable[..., Any]) -> Callable[..., Any]:
    """Around what calls a tool: ADK makes text for the model of each failure."""

    async def run_impl(self: Any, **given: Any) -> Any:
        try:
            return await run(self, **given)
        except Exception as error:
            losses = _losses.get()
            if losses is not None and is_lost(error):
                losses.append(error)
            raise

    return run_impl


async def called(work: Callable[[], Awaitable[Any]]) -> Any:
    """In the step of a call: what the server could not be asked for is tried again."""
    losses: list[Exception] = []
    token = _losses.set(losses)
    try:
        result = await work()
    finally:
        _losses.reset(token)
    if losses:
        raise SessionLost(f"an MCP server could not be reached: {losses[0]}") from losses[0]
    return result


def is_tool(tool: object) -> bool:
    return _TOOLS in sys.modules and isinstance(tool, sys.modules[_TOOLS].McpTool)


def told(error: Exception) -> dict[str, Any]:
    """As ADK tells the model of a failure."""
    return {"error": f"Unexpected error during MCP tool execution: {error}"}
