"""Sessions with MCP servers: one for each run and server.

A session is opened when a run first needs it, by a step, so that a replay needs none. It is no part
of that step: a task outside of the run keeps it until the run leaves memory. One that is lost is
opened anew by the next try of the step that has lost it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

import holdfast

S = TypeVar("S")
T = TypeVar("T")

_SESSIONS, _OWN = "holdfast.mcp", "holdfast.mcp.own"
_CONNECTION_CLOSED = -32000
_LOST_WORDS = (
    "session terminated",
    "connection closed",
    "connection lost",
    "connection to the mcp server was closed",
)
_LOST_NAMES = frozenset(
    """
    TransportError ClosedResourceError BrokenResourceError EndOfStream
    MCPClientInitializationError MCPConnectionError
    """.split()
)
_CAUSES_MAX = 20


class SessionLost(ConnectionError):
    """The session with an MCP server is gone; the next try opens another."""


def is_lost(error: BaseException) -> bool:
    """Is the session gone, or was it never there? If not, only this request of it was refused."""
    return any(_says_lost(one) for one in _causes(error))


def _says_lost(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | EOFError | BrokenPipeError):
        return True
    if _LOST_NAMES & {kind.__name__ for kind in type(error).__mro__}:
        return True
    said = getattr(error, "error", None)  # of an error in MCP's own words
    if getattr(said, "code", None) == _CONNECTION_CLOSED:
        return True
    return any(word in str(getattr(said, "message", error)).lower() for word in _LOST_WORDS)


def _causes(error: BaseException) -> Iterator[BaseException]:
    left = [error]
    for _ in range(_CAUSES_MAX):
        if not left:
            return
        one = left.pop()
        yield one
        if one.__cause__ is not None:
            left.append(one.__cause__)
        if isinstance(one, BaseExceptionGroup):
            left.extend(one.exceptions)


def of_run(like: Any, make: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> T:
    """What a run has instead of something of the program's that keeps sessions itself."""
    known: dict[int, tuple[Any, T]] = holdfast.scratch().setdefault(_OWN, {})
    if id(like) not in known:
        made = make()
        known[id(like)] = (like, made)  # with the other, so that its id stays its own
        holdfast.on_leave(lambda: close(made))
    return known[id(like)][1]


@contextlib.asynccontextmanager
async def session(
    server: Hashable, open: Callable[[], AbstractAsyncContextManager[S]]
) -> AsyncIterator[S]:
    """The run's session with a server; in a step. An error inside that says that it is lost becomes
    a `SessionLost`, which a step's policy tries again."""
    kept = _kept(server, open)
    try:
        yield await kept.opened()
    except Exception as error:
        if not is_lost(error):
            raise
        lose(server, kept)
        raise SessionLost(f"the session with an MCP server is lost: {error!r}") from error


def lose(server: Hashable, kept: object = None) -> None:
    """Closes a session that is of no use any more, if it is still the run's."""
    sessions = _sessions()
    found = sessions.get(server)
    if found is not None and (kept is None or found is kept):
        del sessions[server]
        found.close()


def _kept(server: Hashable, open: Callable[[], AbstractAsyncContextManager[S]]) -> Kept[S]:
    sessions = _sessions()
    found: Kept[S] | None = sessions.get(server)
    if found is None or found.is_over:
        found = sessions[server] = Kept(open)
        holdfast.on_leave(found.closed)
    return found


def _sessions() -> dict[Hashable, Any]:
    found: dict[Hashable, Any] = holdfast.scratch().setdefault(_SESSIONS, {})
    return found


class Kept(Generic[S]):
    """A session in a task of its own, outside of any run: what opens it must close it."""

    def __init__(self, open: Callable[[], AbstractAsyncContextManager[S]]) -> None:
        self._open = open
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        self._session: asyncio.Future[S] = self._loop.create_future()
        self._task = contextvars.Context().run(lambda: self._loop.create_task(self._keep()))

    @property
    def is_over(self) -> bool:
        return self._task.done() or self._closing.is_set()

    async def opened(self) -> S:
        return await asyncio.shield(self._session)

    def close(self) -> None:
        self._closing.set()

    async def closed(self) -> None:
        self.close()
        await asyncio.wait({self._task})

    async def _keep(self) -> None:
        try:
            async with self._open() as session:
                self._session.set_result(session)
                await self._closing.wait()
        except BaseException as error:
            if not self._session.done():
                is_plain = isinstance(error, Exception)
                told = error if is_plain else SessionLost("it was given up while it was opened")
                self._session.set_exception(told)
                self._session.exception()  # perhaps nobody waits for it any more
            # Otherwise it was lost, or could not be ended well: whoever calls it is told.
            if not isinstance(error, Exception):
                raise
