"""MCP servers of agents (`Agent(mcps=[...])`): what tools they have is a step, and so is each call.

CrewAI opens a session for each listing and each call, in an event loop made for it. In a durable
crew these are made on the run's own event loop, in one session with each server that goes on until
the run leaves memory. So it is with servers that are given as mere addresses.
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
from crewai.mcp.config import MCPServerHTTP
from crewai.mcp.tool_resolver import MCPToolResolver
from crewai.tools.mcp_native_tool import MCPNativeTool
from crewai.tools.mcp_tool_wrapper import MCPToolWrapper

from holdfast.adapters._mcp import session
from holdfast.adapters.crewai.active import Active, active, call, on_runs_loop

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
    MCPToolResolver._get_mcp_tool_schemas = _schemas(  # type: ignore[method-assign]
        MCPToolResolver._get_mcp_tool_schemas
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
        token = _listed.set(_list(found, own))
        try:
            tools, clients = original(self, config, *args, **named)
        finally:
            _listed.reset(token)
        for tool in tools:
            tool._client_factory = lambda: own
        return tools, clients

    setattr(resolve, _MARK, True)
    return resolve


def _list(found: Active, own: Own) -> list[Any]:
    retry = found.settings.policy.for_tool(_LIST)
    listed: list[Any] = call(found, _LIST, lambda: on_runs_loop(own.list_tools()), retry=retry)
    return listed


def _schemas(original: Callable[..., Any]) -> Callable[..., Any]:
    """Of the tools of a server that is a mere address. CrewAI remembers them for all crews of its
    process, for a while; a run has them on record."""

    @functools.wraps(original)
    def schemas(self: MCPToolResolver, server_params: dict[str, Any]) -> dict[str, Any]:
        found = active()
        if found is None:
            return original(self, server_params)  # type: ignore[no-any-return]
        listed = _list(found, _at(server_params))
        return {one["name"]: _schema(one) for one in listed}

    return schemas


def _schema(listed: dict[str, Any]) -> dict[str, Any]:
    given = listed.get("inputSchema")
    made = MCPToolResolver._json_schema_to_pydantic(listed["name"], given) if given else None
    return {"description": listed.get("description") or "", "args_schema": made}


def _at(server_params: dict[str, Any]) -> Own:
    return Own(MCPServerHTTP(url=server_params["url"]))


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


async def _called(tool: MCPToolWrapper, given: dict[str, Any]) -> str:
    """In a step: what fails is tried again as that says, and not as CrewAI would."""
    own = _at(tool.mcp_server_params)
    result = await own.call_tool_result(tool.original_tool_name, given)
    return MCPNativeTool._extract_content(result.content)


def how_to_run(tool: Any) -> Callable[..., Any]:
    """Tools of servers are called on the run's event loop."""
    if isinstance(tool, MCPToolWrapper):
        return lambda **given: _called(tool, given)
    run: Callable[..., Any] = tool._run_async if isinstance(tool, MCPNativeTool) else tool._run
    return run


HOOKS = {
    "MCPToolResolver._resolve_native": getattr(MCPToolResolver, "_resolve_native", None),
    "MCPToolResolver._create_transport": getattr(MCPToolResolver, "_create_transport", None),
    "MCPToolResolver._get_mcp_tool_schemas": getattr(
        MCPToolResolver, "_get_mcp_tool_schemas", None
    ),
    "MCPToolWrapper.mcp_server_params": getattr(MCPToolWrapper, "mcp_server_params", None),
    "MCPNativeTool._extract_content": getattr(MCPNativeTool, "_extract_content", None),
    "MCPNativeTool._run_async": getattr(MCPNativeTool, "_run_async", None),
    "MCPClient.call_tool_result": getattr(MCPClient, "call_tool_result", None),
}
