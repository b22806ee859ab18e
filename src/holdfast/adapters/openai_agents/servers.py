"""MCP servers: what tools they have is a step of the run, and so is each call of one.

A server that somebody has connected is used as it is. One that nobody has is connected when a run
first needs it, on replay perhaps never, and for as long as runs use it: it is one session for all
the calls of a run.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from typing import Any

from mcp import Tool as MCPTool

import holdfast
from holdfast.adapters._shared import as_step
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
    async def list_tools(self, *args: Any, **named: Any) -> list[MCPTool]:
        server: Any = self
        inner: Any = super()
        if holdfast.current_run() is None:
            found: list[MCPTool] = await inner.list_tools(*args, **named)
            return found

        async def work() -> Any:
            await _connect(server)
            listed = await inner.list_tools(*args, **named)
            return [tool.model_dump(mode="json", by_alias=True) for tool in listed]

        name = f"mcp.{server.name}.list_tools"
        recorded: Any = await place().claim(lambda: as_step(name, work))
        return [MCPTool.model_validate(tool) for tool in recorded]

    async def call_tool(self, *args: Any, **named: Any) -> Any:
        """In the step of the call."""
        inner: Any = super()
        if holdfast.current_run() is not None:
            await _connect(self)
        return await inner.call_tool(*args, **named)


@functools.cache
def _durable_class(kind: type[Any]) -> type[Any]:
    return type(kind.__name__, (_DurableServer, kind), {"__module__": kind.__module__})


# Connections


class _Connection:
    """A session that is ours. A task of its own opens and closes it, outside of any run."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.users: set[object] = set()
        self.closing = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.task = contextvars.Context().run(lambda: loop.create_task(self._keep()))

    async def _keep(self) -> None:
        try:
            await self._open()
            await self.closing.wait()
        finally:
            try:
                await self._server.cleanup()
            finally:
                del _connections[id(self._server.__dict__)]

    async def _open(self) -> None:
        try:
            await self._server.connect()
        except Exception as error:
            self.closing.set()
            self.opened.set_exception(error)
        else:
            self.opened.set_result(None)


_connections: dict[int, _Connection] = {}
"""By the identity of what a server shares with its durable copies."""


async def _connect(server: Any) -> None:
    now, shared = active.get(), id(server.__dict__)
    while shared in _connections and _connections[shared].closing.is_set():
        await asyncio.wait({_connections[shared].task})
    if shared not in _connections:
        if now is None or getattr(server, "session", server) is not None:
            return
        _connections[shared] = _Connection(server)
    connection = _connections[shared]
    assert now is not None, "only the runner lists tools in a run"
    connection.users.add(now.user)
    await asyncio.shield(connection.opened)


def disconnect(user: object) -> list[asyncio.Task[None]]:
    """Closes what nobody else uses; the tasks end when it is closed."""
    left = [one for one in _connections.values() if user in one.users]
    for connection in left:
        connection.users.remove(user)
        if not connection.users:
            connection.closing.set()
    return [connection.task for connection in left if connection.closing.is_set()]
