"""Tools of MCP servers: in a run they are called by a client of the run's own.

Strands connects a client and lists its tools when an agent is made of it, in a thread of the
client's. A run has a client like it, which is connected when the run first calls one of its tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import sys
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Any

from strands.types.tools import AgentTool

from holdfast.adapters._mcp import is_lost, session

_TOOLS = "strands.tools.mcp.mcp_agent_tool"


@contextlib.asynccontextmanager
async def reached(tool: AgentTool) -> AsyncIterator[AgentTool]:
    """In the step of a call: the tool, and if it is a server's, by the run's own session."""
    if _TOOLS not in sys.modules or not isinstance(tool, sys.modules[_TOOLS].MCPAgentTool):
        yield tool
        return
    client = tool.mcp_client  # type: ignore[attr-defined]
    async with session(("strands", id(client)), lambda: _connected(client)) as own:
        made = copy.copy(tool)
        made.mcp_client = own  # type: ignore[attr-defined]
        yield made


@contextlib.asynccontextmanager
async def _connected(client: Any) -> AsyncIterator[Any]:
    made = _another(client)
    await asyncio.to_thread(made.start)
    try:
        yield made
    finally:
        with contextlib.suppress(RuntimeError):  # it was lost
            await asyncio.to_thread(made.stop, None, None, None)


def _another(client: Any) -> Any:
    """A client as the other was before it was connected."""
    made = copy.copy(client)
    made._session_id = uuid.uuid4()
    made._init_future = Future()
    made._close_future = made._close_exception = None
    made._background_thread = made._background_thread_session = None
    made._background_thread_event_loop = None
    made._on_tools_changed = made._loaded_tools = None
    made._tool_provider_started = made._connection_failed = False
    made._tools_refresh_in_progress = made._tools_refresh_pending = False
    made._tools_refresh_tasks, made._background_cleanup_tasks = set(), set()
    made._consumers = set()
    made._handle_tool_execution_error = functools.partial(
        _failed, client._handle_tool_execution_error
    )
    return made


def _failed(tell: Any, tool_use_id: str, error: Exception) -> Any:
    """Strands makes text for the model of each failure; what is lost is to be tried again."""
    if is_lost(error):
        raise error
    return tell(tool_use_id, error)
