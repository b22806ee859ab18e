"""A TCP proxy on loopback that misbehaves on demand: what stands between a test and its server.

    with Proxy(server.port) as proxy:
        connect_to("127.0.0.1", proxy.port)
        proxy.cut()

It lives in a thread of its own. A command has taken effect when it returns: after `pause` not one
more byte leaves the proxy, after `refuse` nobody gets in. What it cannot show is a lost packet: a
side that sends has its bytes taken by the kernel, even if they never go on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Literal, Self, TypeVar

from holdfast.testing.ports import free_port

T = TypeVar("T")
Side = Literal["client", "target"]
SIDES: tuple[Side, Side] = ("client", "target")

CHUNK_BYTES = 64 * 1024
CHUNKS_HELD_MAX = 64  # per connection and direction; then the sender finds no room any more
PORT_TRIES_MAX = 5
SECONDS_MAX = 30.0
NO_LINGER = struct.pack("ii", 1, 0)  # a socket closed with this set is reset


class Proxy:
    """Forwards to `target`, a port on loopback or an address, which may be changed at any time:
    connections that are open stay where they are, new ones go to the new target.
    """

    def __init__(self, target: int | tuple[str, int]) -> None:
        self.target = target
        self.port = 0
        self.connections = 0  # taken so far; refused ones are not among them
        self._seconds = 0.0
        self._gates = {side: asyncio.Event() for side in SIDES}
        self._links: dict[_Link, asyncio.Task[None]] = {}
        self._listener: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="holdfast-proxy", daemon=True
        )

    @property
    def open(self) -> int:
        """How many connections are open now."""
        return len(self._links)

    @property
    def address(self) -> tuple[str, int]:
        """Where new connections go."""
        return ("127.0.0.1", self.target) if isinstance(self.target, int) else self.target

    def start(self) -> Self:
        self._thread.start()
        self.resume()
        return self

    def stop(self) -> None:
        """Resets the connections that are open, and ends. A stopped proxy does not start again."""
        if self._thread.is_alive():
            self.refuse()
            self.cut()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(SECONDS_MAX)
        self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # The commands

    def cut(self, *, reset: bool = True) -> None:
        """Ends the connections that are open on both sides; without `reset`, politely."""
        self._do(self._cut(reset))

    def refuse(self) -> None:
        """New connections are refused, as by a host where nobody listens; open ones go on."""
        self._call(self._refuse)

    def pause(self, towards: Side | None = None) -> None:
        """A black hole: all stays open, new connections get in, and nothing comes through.

        `towards` one side only: a server that hears a commit, and a client that never learns of it.
        Bytes wait for `resume`, and the end of a connection does, too.
        """
        for side in SIDES:
            if towards in (None, side):
                self._call(self._gates[side].clear)

    def resume(self) -> None:
        """Ends `pause` and `refuse`."""
        self._call(self._listen)
        for gate in self._gates.values():
            self._call(gate.set)

    def delay(self, seconds: float) -> None:
        """What arrives from now on is forwarded that much later, in each direction."""
        if seconds < 0:
            raise ValueError(f"a delay of {seconds} s")
        self._call(lambda: setattr(self, "_seconds", seconds))

    def half_close(self, towards: Side = "client") -> None:
        """That side of the open connections sees an end; what it sends itself still goes through.

        What the other side sends is swallowed from now on.
        """

        def close() -> None:
            for link in self._links:
                link.half_close(towards)

        self._call(close)

    # Within; all of this runs on the proxy's own thread

    def _do(self, command: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(command, self._loop).result(SECONDS_MAX)

    def _call(self, command: Callable[[], None]) -> None:
        async def called() -> None:
            command()

        self._do(called())

    def _listen(self) -> None:
        if self._listener is not None:
            return
        for tries_left in reversed(range(PORT_TRIES_MAX)):
            listener = socket.socket()
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", self.port or free_port()))
                listener.listen(128)
            except OSError:
                listener.close()
                if self.port or not tries_left:
                    raise
            else:
                self.port = listener.getsockname()[1]
                self._listener = listener
                return self._loop.add_reader(listener, self._accept)

    def _accept(self) -> None:
        """Takes all who have knocked."""
        while self._listener is not None:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            link = _Link(self, client)
            self._links[link] = task = self._loop.create_task(link.run())
            task.add_done_callback(link.close)  # called even if it is cut before it runs

    def _refuse(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    async def _cut(self, reset: bool) -> None:
        self._accept()  # who is in already, as he sees it, is cut as well
        links = dict(self._links)
        for link, task in links.items():
            link.reset = reset
            task.cancel()
        await asyncio.gather(*links.values(), return_exceptions=True)


class _Link:
    """One client and its connection to the target."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._sockets = {"client": client, "target": socket.socket()}
        self._shut: set[Side] = set()
        self.reset = False
        for one in self._sockets.values():
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def run(self) -> None:
        """Until both sides have ended, one of them fails, or it is cut."""
        try:
            await self._proxy._gates["target"].wait()
            await self._proxy._loop.sock_connect(self._sockets["target"], self._proxy.address)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._flow("client", "target"))
                both.create_task(self._flow("target", "client"))
        except* OSError:
            self.reset = True  # and so the other side learns of it

    def close(self, ended: object) -> None:
        for one in self._sockets.values():
            if self.reset:
                with contextlib.suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            one.close()
        del self._proxy._links[self]

    def half_close(self, side: Side) -> None:
        self._shut.add(side)
        with contextlib.suppress(OSError):  # it is not connected any more, or not yet
            self._sockets[side].shutdown(socket.SHUT_WR)

    async def _flow(self, source: Side, sink: Side) -> None:
        held: asyncio.Queue[tuple[float, bytes | OSError]] = asyncio.Queue(CHUNKS_HELD_MAX)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._read(source, held))
            both.create_task(self._write(sink, held))

    async def _read(self, source: Side, held: asyncio.Queue[tuple[float, bytes | OSError]]) -> None:
        loop = self._proxy._loop
        more: bytes | OSError = b"x"
        while more and not isinstance(more, OSError):
            try:
                more = await loop.sock_recv(self._sockets[source], CHUNK_BYTES)
            except OSError as failure:
                more = failure
            await held.put((loop.time() + self._proxy._seconds, more))

    async def _write(self, sink: Side, held: asyncio.Queue[tuple[float, bytes | OSError]]) -> None:
        """Ends after the end, an empty chunk, has been passed on."""
        while True:
            due, chunk = await held.get()
            await asyncio.sleep(max(0.0, due - self._proxy._loop.time()))
            await self._proxy._gates[sink].wait()
            if isinstance(chunk, OSError):
                raise chunk
            if not chunk:
                return self.half_close(sink)
            await self._send(sink, memoryview(chunk))

    async def _send(self, sink: Side, rest: memoryview) -> None:
        """By small steps, so that a pause comes into effect between them."""
        while rest and sink not in self._shut:
            await self._proxy._gates[sink].wait()
            try:
                rest = rest[self._sockets[sink].send(rest) :]
            except BlockingIOError:
                await self._writable(self._sockets[sink])

    async def _writable(self, sink: socket.socket) -> None:
        loop, ready = self._proxy._loop, asyncio.Event()
        loop.add_writer(sink, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(sink)
