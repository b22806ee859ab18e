"""MCP servers: a run's own session with each, connected when a step first needs it.

Pydantic AI lets a run hold a toolset that its first step enters. Here that is a copy of the
toolset, which is entered outside of the run and of its steps: the toolset itself is shared by all
runs of a process, and a session that a step opens would be a part of the step. A toolset that the
program has entered is used as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
from collections.abc import AsyncIterator, Callable
from typing import Any

from holdfast.adapters._mcp import session
from holdfast.adapters._shared import find_hooks

_MODULE = "pydantic_ai.durable_exec._toolset"
HOOKS = find_hooks([f"{_MODULE}:DurableMCPToolset.for_run", f"{_MODULE}:RunHeldToolset.entered"])
_DurableServer, _RunHeld = find_hooks(
    [f"{_MODULE}:DurableMCPToolset", f"{_MODULE}:RunHeldToolset"]
).values()
DurableServer: Any = _DurableServer or object
RunHeld: Any = _RunHeld or object

_ASKED = ("call_tool", "list_tools")


def held_by_runs(toolset: Any) -> Any:
    """What stands for a server's tools in a durable agent, as Pydantic AI has made it."""
    if isinstance(toolset, DurableServer):
        toolset.__class__ = Server
    return toolset


class Server(DurableServer):
    async def for_run(self, ctx: Any) -> Any:
        made: Any = await super().for_run(ctx)
        held = made._run_held
        if held is not None and not held.toolset.is_running:
            made._run_held = Held(held.id, held.toolset)
        return made


class Held(RunHeld):
    async def entered(self) -> Any:
        """In a step."""
        async with self._session() as toolset:
            return toolset

    async def aclose(self, *args: Any) -> None:
        """It is closed when the run leaves memory."""

    def _session(self) -> contextlib.AbstractAsyncContextManager[Any]:
        key = ("pydantic_ai", self.id, id(self.toolset))
        return session(key, lambda: _entered(self.toolset, self._asked))

    def _asked(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        """Pydantic AI tells the model that a session is lost; it is to be opened anew."""

        @functools.wraps(ask)
        async def asked(*args: Any, **named: Any) -> Any:
            async with self._session():
                return await ask(*args, **named)

        return asked


@contextlib.asynccontextmanager
async def _entered(toolset: Any, around: Callable[[Any], Any]) -> AsyncIterator[Any]:
    made = copy.copy(toolset)
    vars(made).pop("_enter_lock", None)  # made on first use
    made._server_initiated_handlers = list(toolset._server_initiated_handlers)
    made.client = toolset.client.new()
    made.client.transport = _transport(made.client.transport)
    for name in _ASKED:
        setattr(made.client, name, around(getattr(made.client, name)))
    async with made:
        yield made


def _transport(transport: Any) -> Any:
    """A process of its own, which ends with the run; others keep nothing from call to call."""
    if not hasattr(transport, "_connect_task"):
        return transport
    made = copy.copy(transport)
    made.keep_alive = False
    made._session = made._session_options = made._connect_task = None
    made._active_sessions = 0
    made._connect_lock = type(transport._connect_lock)()
    made._ready_event, made._stop_event = asyncio.Event(), asyncio.Event()
    return made
