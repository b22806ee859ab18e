"""Streams: what a step makes piece by piece, read while it is made.

On replay the step does not run: all pieces are taken from what it returned, and come at once. So
what a reader calls durably between two pieces waits until the step has ended (see
`holdfast.Preview`): what was made of an answer is on record after the answer. Of a step that fails
or is cancelled the pieces that were read are kept by themselves, and come again before its error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Generic, TypeVar

import holdfast

A = TypeVar("A")
T = TypeVar("T")


class StreamBroken(holdfast.Terminal):
    """A streamed answer ended in its middle, when a part of it had been handed on."""


def _as_it_is(piece: Any) -> Any:
    return piece


class Relay(Generic[T]):
    """Hands pieces on to whoever reads beside the step that makes them.

    recorded: the pieces as they are written to the journal, those that were not yet handed on
    included; the step fills it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: list[T] = []
        self._news = asyncio.Event()
        self.recorded: list[Any] = []
        self.left = False  # the reader has had enough

    # In the step

    def begins(self) -> list[Any]:
        """Another try: what is recorded of it. What was handed on of the one before stays."""
        del self.recorded[self.handed_on :]
        return self.recorded

    def put(self, piece: T, recorded: Any) -> None:
        """From any thread."""

        def hand_on() -> None:
            self.recorded.append(recorded)
            self.hand_on(piece)

        self._loop.call_soon_threadsafe(hand_on)

    def hand_on(self, *pieces: T) -> None:
        """From the event loop."""
        self._pieces.extend(pieces)
        self._news.set()

    @property
    def handed_on(self) -> int:
        return len(self._pieces)

    def refuse_if_read(self, what: str, error: Exception) -> None:
        """A stream that failed can be begun again if nothing was handed on: a reader cannot take
        back what it has read."""
        if self.handed_on:
            message = f"the stream of {what} broke in its middle: {type(error).__name__}: {error}"
            raise StreamBroken(message) from error

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
        preview = holdfast.Preview(lambda: self.recorded[: self.handed_on])
        kept, sent = list(preview.kept), 0
        calling.add_done_callback(lambda _: preview.end(returned=_has_returned(calling)))
        calling.add_done_callback(lambda _: self._news.set())
        try:
            for piece in kept:
                yield made(piece)
            while not calling.done() or sent < len(self._pieces):
                if sent == len(self._pieces):
                    self._news.clear()
                    await self._news.wait()
                    continue
                sent += 1
                if not calling.done():
                    preview.begin()
                yield self._pieces[sent - 1]
            for piece in pieces_in(await calling)[max(sent, len(kept)) :]:
                yield made(piece)
        except asyncio.CancelledError:
            if not calling.done():  # what it returns will be on record after the cancellation
                preview.cut()
            if cancels:
                calling.cancel()
            raise
        finally:
            self.left = True
            if not calling.done():
                await asyncio.wait({calling})
            preview.forget()


def _has_returned(calling: asyncio.Future[Any]) -> bool:
    return not calling.cancelled() and calling.exception() is None
