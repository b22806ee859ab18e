"""Streams: what a step makes piece by piece, read while it is made.

On replay the step does not run: all pieces are taken from what it returned, and come at once. So
what a reader calls durably between two pieces waits until the step has ended (see
`holdfast.Preview`): what was made of an answer is on record after the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Generic, TypeVar

import holdfast

A = TypeVar("A")
T = TypeVar("T")


def _as_it_is(piece: Any) -> Any:
    return piece


class Relay(Generic[T]):
    """Hands pieces on to whoever reads beside the step that makes them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: list[T] = []
        self._news = asyncio.Event()
        self.left = False  # the reader has had enough

    # In the step

    def put(self, piece: T) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self.hand_on, piece)

    def hand_on(self, *pieces: T) -> None:
        """From the event loop."""
        self._pieces.extend(pieces)
        self._news.set()

    @property
    def handed_on(self) -> int:
        return len(self._pieces)

    # For the reader

    async def begun(self, calling: asyncio.Future[Any]) -> None:
        """Returns when there is something to read, or the step has ended."""
        calling.add_done_callback(lambda _: self._news.set())
        await self._news.wait()

    async def read(
        self,
        calling: asyncio.Future[A],
        pieces_in: Callable[[A], Sequence[Any]],
        *,
        made: Callable[[Any], T] = _as_it_is,
        cancels: bool = False,
    ) -> AsyncGenerator[T, None]:
        """calling: the step; pieces_in: of what it returned; made: what becomes of each of those.
        Whoever leaves early waits for the step, so that it is on record; whoever is cancelled then
        cancels it, if it can be."""
        preview = holdfast.Preview()
        calling.add_done_callback(lambda _: preview.end())
        calling.add_done_callback(lambda _: self._news.set())
        sent = 0
        try:
            while not calling.done() or sent < len(self._pieces):
                if sent == len(self._pieces):
                    self._news.clear()
                    await self._news.wait()
                    continue
                sent += 1
                if not calling.done():
                    preview.begin()
                yield self._pieces[sent - 1]
            for piece in pieces_in(await calling)[sent:]:
                yield made(piece)
        except asyncio.CancelledError:
            if cancels:
                calling.cancel()
            raise
        finally:
            self.left = True
            if not calling.done():
                await asyncio.wait({calling})
