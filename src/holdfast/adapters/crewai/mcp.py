"""MCP servers of agents (`Agent(mcps=[...])`): what tools they have is a step, and so is each call.

CrewAI opens a session for each listing and each call, in an event loop made for it. In a durable
crew these are made on the run's own event loop, in one session with each server that goes on until
the run leaves memory. Servers that are given as mere addresses are left to CrewAI.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import crewai.mcp.tool_resolver
from crewai.mcp.client import MCPClient
from crewai.mcp.tool_resolver import MCPToolResolver
from crewai.tools.mcp_native_tool import MCPNativeTool

from holdfast.adapters._mcp import session
from holdfast.adapters.crewai.active import active, call, on_runs_loop

_MARK = "__holdfast_mcp__"
_SAYS = ("command", "args", "env", "url", "headers", "streamable")
_LIST = "mcp.list_tools"

_listed: contextvars.ContextVar[list[Any] | None] = contextvars.ContextVar(
    "holdfast.crewai.mcp", default=None
)


def install() -> None:
    if hasattr(MCPToolResolver._resolve_native, _MARK):
        return
    MCPToolResolver._resolve_native = _resolved(  # type: ignore[method-assign]
        MCPToolResolver._resolve_native
    )
    module: Any = crewai.mcp.tool_resolver
    module.MCPClient = _client


def _resolved(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def resolve(self: MCPToolResolver, config: Any, *args: Any, **named: Any) -> Any:
        found = active()
        if found is None:
            return original(self, config, *args, **named)
        own = Own(config)
        retry = found.settings.policy.for_tool(_LIST)
        listed = call(found, _LIST, lambda: on_runs_loop(own.list_tools()), retry=retry)
        token = _listed.set(listed)
        try:
            tools, clients = original(self, config, *args, **named)
        finally:
            _listed.reset(token)
        for tool in tools:
            tool._client_factory = lambda: own
        return tools, clients

    setattr(resolve, _MARK, True)
    return resolve


def _client(*args: Any, **named: Any) -> Any:
    """A client as the resolver makes it; or what it is to be told, if that is known."""
    listed = _listed.get()
    return MCPClient(*args, **named) if listed is None else Known(listed)


class Known:
    """Stands for a client that has only to say which tools there are."""

    connected = False

    def __init__(self, listed: list[Any]) -> None:
        self._listed = listed

    async def connect(self) -> None: ...

    async def disconnect(self) -> None: ...

    async def list_tools(self) -> list[Any]:
        return self._listed


class Own:
    """Stands for a client that CrewAI makes for one call. On the run's event loop, in a step."""

    def __init__(self, config: Any) -> None:
        self._config = config

    async def connect(self) -> None:
        """It is connected when it is called."""

    async def disconnect(self) -> None:
        """When the run leaves memory."""

    async def list_tools(self) -> list[dict[str, Any]]:
        async with self._session() as client:
            return await client.list_tools(use_cache=False)

    async def call_tool_result(self, *args: Any) -> Any:
        async with self._session() as client:
            return await client.call_tool_result(*args)

    def _session(self) -> AbstractAsyncContextManager[MCPClient]:
        config = self._config
        said = repr([(name, getattr(config, name, None)) for name in _SAYS])
        return session(("crewai", type(config), said), lambda: _connected(config))


@contextlib.asynccontextmanager
async def _connected(config: Any) -> AsyncIterator[MCPClient]:
    transport, _ = MCPToolResolver._create_transport(config)
    client = MCPClient(transport, max_retries=1)  # the step's policy says when to try again
    await client.connect()
    try:
        yield client
    finally:
        await client.disconnect()


def is_tool(tool: object) -> bool:
    return isinstance(tool, MCPNativeTool)


HOOKS = {
    "MCPToolResolver._resolve_native": getattr(MCPToolResolver, "_resolve_native", None),
    "MCPToolResolver._create_transport": getattr(MCPToolResolver, "_create_transport", None),
    "MCPNativeTool._run_async": getattr(MCPNativeTool, "_run_async", None),
    "MCPClient.call_tool_result": getattr(MCPClient, "call_tool_result", None),
}
