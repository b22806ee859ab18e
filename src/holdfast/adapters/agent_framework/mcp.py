"""MCP servers: what tools and prompts they have is a step of the run, and so is each call of one.

A server that the program has connected is used as it is. Of one that it has not, the agent in a run
gets a stand-in, whose functions are those on record. They are called by a copy of the server that
is the run's own, and connected when it is first needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import holdfast
from holdfast.adapters._mcp import session
from holdfast.adapters._shared import as_step
from holdfast.adapters.agent_framework.active import Active, place

_SERVERS = "agent_framework._mcp"
_PAGES_MAX = 1000


def is_server(tool: object) -> bool:
    return _SERVERS in sys.modules and isinstance(tool, sys.modules[_SERVERS].MCPTool)


async def offered(server: Any, now: Active, given: Mapping[str, Any]) -> Any:
    """What an agent is to be given instead of a server, in a run. given: what its tools are given
    beside what the model says."""
    if not is_server(server) or server.is_connected:
        return server
    if server._connection is not None:
        raise holdfast.Unsupported(
            f"the MCP server {server.name!r} was given a connection that is not open, and no run "
            "could open another one like it: connect it when the program starts, by `async with "
            "agent:`, or let the framework make the connection"
        )
    kind: Any = type(server)
    made = _unconnected(server, _stand_in(kind))
    made._holdfast_server, made._holdfast_given = server, dict(given)
    retry = now.options.policy.for_tool(server.name)
    name = f"mcp.{server.name}.list_tools"
    made._holdfast_listed = await place().claim(lambda: as_step(name, made._listing, retry=retry))
    made.is_connected = True
    if made.load_tools_flag:
        await made.load_tools()
    if made.load_prompts_flag:
        await made.load_prompts()
    return made


class StandIn:
    """What it does differently from the server's class."""

    _holdfast_server: Any
    _holdfast_given: dict[str, Any]
    _holdfast_listed: dict[str, list[Any]]
    _tool_call_meta_by_name: Any
    _tool_param_names_by_name: Any

    def _reached(self) -> AbstractAsyncContextManager[Any]:
        server, given = self._holdfast_server, self._holdfast_given
        return session(("agent_framework", id(server)), lambda: _connected(server, given))

    async def _listing(self) -> dict[str, list[Any]]:
        """In a step."""
        async with self._reached() as own:
            ask = own._require_connection()
            tools = await _all(ask.list_tools_page, "tools") if own._supports_tools else []
            prompts = await _all(ask.list_prompts_page, "prompts") if own._supports_prompts else []
            return {"tools": tools, "prompts": prompts}

    async def call_tool(self, tool_name: str, **kwargs: Any) -> Any:
        """In the step of the call."""
        async with self._reached() as own:
            own._tool_call_meta_by_name = self._tool_call_meta_by_name
            own._tool_param_names_by_name = self._tool_param_names_by_name
            with _called_by(self, own):
                return await own.call_tool(tool_name, **kwargs)

    async def _call_prompt_with_runtime_kwargs(self, *args: Any) -> Any:
        async with self._reached() as own:
            return await own._call_prompt_with_runtime_kwargs(*args)

    async def _prepare_for_run(self, kwargs: Any) -> None:
        """There is nothing to connect."""

    # What is asked of a connection while functions are made of what is on record

    async def _ensure_connected(self) -> None: ...

    def _require_connection(self) -> Any:
        return self

    async def list_tools_page(self, params: Any) -> Any:
        from mcp.types import ListToolsResult

        return ListToolsResult.model_validate({"tools": self._holdfast_listed["tools"]})

    async def list_prompts_page(self, params: Any) -> Any:
        from mcp.types import ListPromptsResult

        return ListPromptsResult.model_validate({"prompts": self._holdfast_listed["prompts"]})


@functools.cache
def _stand_in(kind: type[Any]) -> type[Any]:
    return type(kind.__name__, (StandIn, kind), {"__module__": kind.__module__})


@contextlib.asynccontextmanager
async def _connected(server: Any, given: Mapping[str, Any]) -> AsyncIterator[Any]:
    made = _unconnected(server, type(server))
    made._seed_connection_kwargs(given)
    # What it has to offer is on record, or about to be asked for.
    made.load_tools_flag = made.load_prompts_flag = False
    async with made:
        made.load_tools_flag, made.load_prompts_flag = True, server.load_prompts_flag
        yield made


def _unconnected(server: Any, kind: type[Any]) -> Any:
    made = object.__new__(kind)
    made.__dict__.update(server.__dict__)
    made._exit_stack = contextlib.AsyncExitStack()
    made._functions, made._progressive_loader_functions = [], None
    made._progressive_loaded_tool_names, made._pending_reload_tasks = set(), set()
    for name, value in server.__dict__.items():
        if isinstance(value, asyncio.Lock):
            setattr(made, name, asyncio.Lock())
    if hasattr(made, "_header_request_owner"):
        made._header_request_owner = object()
        made.__dict__.pop("_inject_headers_hook", None)  # it is the other's
    return made


async def _all(ask: Callable[[Any], Any], what: str) -> list[Any]:
    """Of all pages."""
    from mcp.types import PaginatedRequestParams

    found: list[Any] = []
    params = None
    for _ in range(_PAGES_MAX):
        page = await ask(params)
        found += [one.model_dump(mode="json", by_alias=True) for one in getattr(page, what)]
        if not page.next_cursor:
            break
        params = PaginatedRequestParams(cursor=page.next_cursor)
    return found


@contextlib.contextmanager
def _called_by(stand_in: object, own: object) -> Any:
    """Headers are made of what the program gives to a call, if it is a call of the same server."""
    variable = sys.modules[_SERVERS]._mcp_tool_runtime_context
    before = variable.get()
    if before is None or before[0] is not stand_in:
        yield
        return
    token = variable.set((own, before[1]))
    try:
        yield
    finally:
        variable.reset(token)
