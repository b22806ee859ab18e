"""Tools of MCP servers, as langchain-mcp-adapters gives them to graphs.

It opens a session for each call. In a durable graph these are lent the run's own session with the
server, which goes on until the run leaves memory. `durable(client)` makes the listing of tools in a
run a step; a program may as well list them before there is a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import sys
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import holdfast
from holdfast.adapters._langgraph_active import active
from holdfast.adapters._mcp import session
from holdfast.adapters._shared import Policy, as_step, find_hooks, require_hooks

_TESTED = "0.3.2"
_CLIENT, _TOOLS = "langchain_mcp_adapters.client", "langchain_mcp_adapters.tools"
_POLICY, _BEFORE = "__holdfast_policy__", "__holdfast_before__"
_CALLBACKS = ("logging_callback", "elicitation_callback")

Create = Callable[..., AbstractAsyncContextManager[Any]]


def install() -> None:
    """If somebody has tools of MCP servers."""
    tools: Any = sys.modules.get(_TOOLS)
    if tools is None or hasattr(getattr(tools, "create_session", None), _BEFORE):
        return
    names = ("create_session", "_list_all_tools", "convert_mcp_tool_to_langchain_tool")
    hooks = find_hooks(f"{_TOOLS}:{name}" for name in names)
    require_hooks("langchain-mcp-adapters", _TESTED, hooks)
    tools.create_session = _lending(tools.create_session)


def _lending(create: Create) -> Create:
    @functools.wraps(create)
    def create_session(
        connection: Any, *, mcp_callbacks: Any = None
    ) -> AbstractAsyncContextManager[Any]:
        if active() is None:
            return create(connection, mcp_callbacks=mcp_callbacks)
        return contextlib.nullcontext(Lent(create, connection, mcp_callbacks))

    setattr(create_session, _BEFORE, create)
    return create_session


class Lent:
    """The run's session, to the extent that tools use one."""

    def __init__(self, create: Create, connection: Any, callbacks: Any) -> None:
        self._create, self._connection, self._callbacks = create, connection, callbacks

    async def initialize(self) -> None:
        """It is, when it is opened."""

    async def call_tool(self, *args: Any, **named: Any) -> Any:
        async with self._session() as shared:
            return await shared.ask("call_tool", self._callbacks, *args, **named)

    async def list_tools(self, *args: Any, **named: Any) -> Any:
        async with self._session() as shared:
            return await shared.ask("list_tools", self._callbacks, *args, **named)

    def _session(self) -> AbstractAsyncContextManager[Shared]:
        key = ("langgraph", _key(self._connection))
        return session(key, lambda: _opened(self._create, self._connection, self._callbacks))


class Shared:
    """A session, and whose calls of it are under way: what the server says beside its answers is
    told to the last of them."""

    def __init__(self) -> None:
        self.session: Any = None
        self._callers: list[Any] = []

    async def ask(self, what: str, callbacks: Any, *args: Any, **named: Any) -> Any:
        self._callers.append(callbacks)
        try:
            return await getattr(self.session, what)(*args, **named)
        finally:
            self._callers.remove(callbacks)

    def tells(self, first: Any) -> Any:
        """Callbacks for the session, where its first caller has any."""
        if first is None:
            return None
        found = {name: self._teller(name, getattr(first, name)) for name in _CALLBACKS}
        return replace(first, **found)

    def _teller(self, name: str, first: Any) -> Any:
        async def tell(*args: Any, **named: Any) -> Any:
            last = getattr(self._callers[-1], name, None) if self._callers else None
            return await (last or first)(*args, **named)

        return None if first is None else tell


@contextlib.asynccontextmanager
async def _opened(create: Create, connection: Any, callbacks: Any) -> AsyncIterator[Shared]:
    shared = Shared()
    async with create(connection, mcp_callbacks=shared.tells(callbacks)) as made:
        await made.initialize()
        shared.session = made
        yield shared


def _key(connection: Any) -> Hashable:
    """Connections that say the same are the same."""
    return repr(sorted(connection.items()))


# Listing


def is_client(found: object) -> bool:
    module = sys.modules.get(_CLIENT)
    return module is not None and isinstance(found, module.MultiServerMCPClient)


def durable_client(client: Any, policy: Policy) -> Any:
    """A copy that lists tools in steps, inside of runs."""
    install()
    kind: Any = type(client)
    made = copy.copy(client)
    made.__class__ = _kind(kind)
    made.__dict__[_POLICY] = policy
    return made


class DurableClient:
    connections: dict[str, Any]

    async def get_tools(self, *, server_name: str | None = None) -> list[Any]:
        if holdfast.current_run() is None:
            found: list[Any] = await super().get_tools(server_name=server_name)  # type: ignore[misc]
            return found
        if server_name is not None and server_name not in self.connections:
            raise ValueError(f"{server_name!r}: there are {', '.join(self.connections)}")
        names = list(self.connections) if server_name is None else [server_name]
        listings = await asyncio.gather(*[self._listing(name) for name in names])
        pairs = zip(names, listings, strict=True)
        return [self._tool(name, tool) for name, tools in pairs for tool in tools]

    def _listing(self, name: str) -> Any:
        tools: Any = sys.modules[_TOOLS]
        create = getattr(tools.create_session, _BEFORE)

        async def work() -> Any:
            found = await tools._list_all_tools(Lent(create, self.connections[name], None))
            return [tool.model_dump(mode="json", by_alias=True) for tool in found]

        policy: Policy = self.__dict__[_POLICY]
        return as_step(f"mcp.{name}.list_tools", work, retry=policy.for_tool(name))

    def _tool(self, name: str, recorded: Any) -> Any:
        tools, client = sys.modules[_TOOLS], self.__dict__
        return tools.convert_mcp_tool_to_langchain_tool(
            None,
            tools.MCPTool.model_validate(recorded),
            connection=self.connections[name],
            callbacks=client["callbacks"],
            tool_interceptors=client["tool_interceptors"],
            server_name=name,
            tool_name_prefix=client["tool_name_prefix"],
            handle_tool_errors=client["handle_tool_errors"],
        )


@functools.cache
def _kind(kind: Any) -> Any:
    if issubclass(kind, DurableClient):
        return kind
    return type(kind.__name__, (DurableClient, kind), {"__module__": kind.__module__})
