"""MCP servers: what tools they have is a step of the run, and so is each call of one.

A server that somebody has connected is used as it is. Of one that nobody has, each run has a copy
to itself, which is connected when the run first needs it, on replay perhaps never.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from typing import Any

from mcp import Tool as MCPTool

import holdfast
from holdfast.adapters._mcp import session
from holdfast.adapters._shared import as_step
from holdfast.adapters.openai_agents import hooks
from holdfast.adapters.openai_agents.options import active, place


def durable_server(server: Any) -> Any:
    """One of the same class, which shares everything with it."""
    if isinstance(server, _DurableServer):
        return server
    kind: type[Any] = type(server)
    made = object.__new__(_durable_class(kind))  # type: ignore[arg-type]
    made.__dict__ = server.__dict__
    return made


class _DurableServer:
    _holdfast_kind: type[Any]

    async def list_tools(self, *args: Any, **named: Any) -> list[MCPTool]:
        server: Any = self
        if holdfast.current_run() is None:
            found: list[MCPTool] = await super().list_tools(*args, **named)  # type: ignore[misc]
            return found

        async def work() -> Any:
            async with _reached(server) as own:
                listed = await own.list_tools(*args, **named)
            return [tool.model_dump(mode="json", by_alias=True) for tool in listed]

        name = f"mcp.{server.name}.list_tools"
        now = active()
        retry = now.options.policy.for_tool(server.name) if now is not None else None
        recorded: Any = await place().claim(lambda: as_step(name, work, retry=retry))
        return [MCPTool.model_validate(tool) for tool in recorded]

    async def call_tool(self, *args: Any, **named: Any) -> Any:
        """In the step of the call."""
        if holdfast.current_run() is None:
            return await super().call_tool(*args, **named)  # type: ignore[misc]
        async with _reached(self) as own:
            return await own.call_tool(*args, **named)


@functools.cache
def _durable_class(kind: type[Any]) -> type[Any]:
    own = {"__module__": kind.__module__, "_holdfast_kind": kind}
    return type(kind.__name__, (_DurableServer, kind), own)


# Sessions


@contextlib.asynccontextmanager
async def _reached(server: Any) -> AsyncIterator[Any]:
    """The server as the SDK knows it, connected."""
    shared = server.__dict__
    if not isinstance(server, hooks.SessionServer) or shared["session"] is not None:
        yield _plain(server, shared)
        return
    async with session(("openai_agents", id(shared)), lambda: _another(server)) as own:
        yield own


def _another(server: Any) -> Any:
    """One that is not connected, and is while it is entered."""
    return _plain(
        server,
        {
            **server.__dict__,
            "exit_stack": contextlib.AsyncExitStack(),
            "_cleanup_lock": asyncio.Lock(),
            "_request_lock": asyncio.Lock(),
            "_cache_dirty": True,
            "_tools_list": None,
        },
    )


def _plain(server: _DurableServer, attributes: dict[str, Any]) -> Any:
    made = object.__new__(server._holdfast_kind)
    made.__dict__ = attributes
    return made
