"""MCP servers: what tools they have is a step of the run, and so is each call of one.

ADK keeps one session with a server for all calls of a toolset. A session that is opened in a run
is not part of it: it goes on when the step that needed it has ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable
from typing import Any

from holdfast.adapters._shared import as_step
from holdfast.adapters.google_adk import hooks
from holdfast.adapters.google_adk.options import Active, active, claim

_TOOLSETS = "google.adk.tools.mcp_tool.mcp_toolset"
_SESSIONS = "google.adk.tools.mcp_tool.mcp_session_manager"


def install() -> None:
    """If somebody uses MCP: to import it takes its time."""
    if _TOOLSETS in sys.modules:
        hooks.wrap(f"{_TOOLSETS}:McpToolset.get_tools_with_prefix", durable_listings)
        hooks.wrap(f"{_SESSIONS}:MCPSessionManager.create_session", sessions_outside)


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
    ask, listing = toolset._execute_with_session, sys.modules[_TOOLSETS].ListToolsResult

    async def asked(*args: Any, **named: Any) -> Any:
        async def work() -> Any:
            found = await ask(*args, **named)
            return found.model_dump(mode="json", by_alias=True, exclude_none=True)

        recorded = await claim(now, lambda: as_step("mcp.list_tools", work))
        return listing.model_validate(recorded)

    made = object.__new__(type(toolset))
    made.__dict__.update(toolset.__dict__)
    made._use_invocation_cache = False
    made._read_tool_list_cache = lambda key: None
    made._execute_with_session = asked
    return made


def sessions_outside(create: Callable[..., Any]) -> Callable[..., Any]:
    """Around what opens a session."""

    async def create_session(self: Any, *args: Any, **named: Any) -> Any:
        if active() is None:
            return await create(self, *args, **named)
        loop = asyncio.get_running_loop()
        work = create(self, *args, **named)
        return await contextvars.Context().run(lambda: loop.create_task(work))

    return create_session
