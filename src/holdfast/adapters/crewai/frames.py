"""Streams of flows: the frames that CrewAI makes of its events while a flow works.

They are recorded with the flow's step, and with each method and each crew inside: when these are
replayed, their frames come again.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any

from crewai.events import stream_context
from crewai.events.stream_context import add_stream_sink, reset_stream_sinks
from crewai.types.streaming import AsyncStreamSession, StreamFrame, StreamSession
from crewai.utilities import streaming
from crewai.utilities.streaming import _create_frame_sink

from holdfast.adapters._relay import Relay
from holdfast.adapters.crewai.values import plain

FRAMES = "frames"


class Frames:
    """Those of one part of a flow. CrewAI takes it for a queue, and puts them in from any thread.
    relay: whoever reads them meanwhile."""

    def __init__(self, relay: Relay[StreamFrame] | None = None) -> None:
        self._relay, self._lock = relay, threading.Lock()
        self._recorded: list[Any] | None = []

    def put(self, frame: StreamFrame) -> None:
        with self._lock:  # read in the order in which they are recorded
            if self._recorded is None:
                return
            self._recorded.append(plain(frame))
            if self._relay is not None:
                self._relay.put(frame, self._recorded[-1])

    def end(self) -> list[Any]:
        with self._lock:
            recorded, self._recorded = self._recorded, None
        return recorded or []


_heard: contextvars.ContextVar[tuple[Frames, ...]] = contextvars.ContextVar(
    "holdfast.crewai.frames", default=()
)


@contextlib.contextmanager
def heard(frames: Frames | None = None) -> Iterator[Frames | None]:
    """Of what is done inside, if anybody reads a stream around it, or `frames` are given."""
    around = _heard.get()
    if frames is None and not around:
        yield None
        return
    frames = frames or Frames()
    queue: Any = frames
    token, hearing = add_stream_sink(_create_frame_sink(queue)), _heard.set((*around, frames))
    try:
        yield frames
    finally:
        _heard.reset(hearing)
        reset_stream_sinks(token)


def kept_with(frames: Frames | None) -> dict[str, Any]:
    """What is recorded of them."""
    found = frames.end() if frames is not None else []
    return {FRAMES: found} if found else {}


def again(kept: dict[str, Any]) -> None:
    """On replay: they come as they came."""
    for frame in kept.get(FRAMES, ()):
        for frames in _heard.get():
            frames.put(_made(frame))


def _made(kept: dict[str, Any]) -> StreamFrame:
    return StreamFrame.model_validate(kept)


def _frames_in(kept: dict[str, Any]) -> list[Any]:
    return list(kept.get(FRAMES, ()))


def session(kick_off: Callable[[Frames], Awaitable[Any]]) -> AsyncStreamSession[Any]:
    """A stream of a kickoff, which begins when it is read."""
    made: AsyncStreamSession[Any]

    async def frames() -> AsyncGenerator[StreamFrame, None]:
        relay: Relay[StreamFrame] = Relay()
        calling = asyncio.ensure_future(kick_off(Frames(relay)))
        reading = relay.read(calling, _frames_in, made=_made)
        async with contextlib.aclosing(reading) as pieces:
            async for piece in pieces:
                yield piece
        made._set_result((await calling)["output"])

    made = AsyncStreamSession(async_iterator=frames())
    return made


def complete(kept: dict[str, Any]) -> StreamSession[Any]:
    made: StreamSession[Any] = StreamSession(sync_iterator=map(_made, _frames_in(kept)))
    made._set_result(kept["output"])
    return made


HOOKS = {
    "stream_context.add_stream_sink": getattr(stream_context, "add_stream_sink", None),
    "streaming._create_frame_sink": getattr(streaming, "_create_frame_sink", None),
}
