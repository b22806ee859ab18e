"""HTTP calls as steps: what a model's server answered is journaled, and not asked for again.

A transport below a client sees every call it makes, whichever method of the client was used. Inside
a run a call is a step: its input is the request's path and body, its result the answer. Retries are
the step's, so the client's own do not begin; when they are used up the client gets the last answer
and raises the error that its users know. Outside of runs the transport is not there.

A streamed answer is handed on while it comes, but for its last piece: that follows when the whole
is durable, so that nobody acts on an answer that might be lost. What is replayed comes at once. A
stream that breaks when a part of it was handed on is not tried again: its reader cannot take back
what it has read.

Not kept of an answer: its headers, but for its type and the server's name for it. The clients are
built on httpx or on its successor httpx2; whichever it is, is taken from the client at hand.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import hashlib
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import holdfast
from holdfast.adapters._relay import Relay
from holdfast.adapters._shared import in_runs, require_hooks

_HEADERS_KEPT = ("content-type", "x-request-id", "request-id")
_HEADERS_OF_ERRORS = (*_HEADERS_KEPT, "retry-after", "retry-after-ms", "x-should-retry")
_HEAD_CHARS_MAX = 300

Answer = dict[str, Any]
"""`status`, `headers`, and `text` (or `data`, if it is none); of a stream `pieces` of its text."""


class Declined(Exception):
    """The server answered with an error."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"HTTP {answer['status']}: {answer.get('text', '')[:_HEAD_CHARS_MAX]}")
        self.answer = answer
        # Where the retry policy looks.
        self.status_code: int = answer["status"]
        self.headers: Mapping[str, str] = answer["headers"]
        self.body = _json(answer.get("text", ""))


@dataclass(frozen=True)
class Asking:
    """A request, as the journal shows it."""

    name: str
    path: str
    body: Any
    streams: bool

    @staticmethod
    def of(request: Any) -> Asking:
        path = request.url.raw_path.decode("ascii", "replace")
        body = _body(request.content, request.headers.get("content-type", ""))
        name = path.partition("?")[0].removeprefix("/v1/").strip("/").replace("/", ".")
        streams = isinstance(body, dict) and body.get("stream") is True
        return Asking(f"{request.method} {name}", f"{request.method} {path}", body, streams)


class AsyncTransport:
    def __init__(self, httpx: Any, inner: Any, retry: holdfast.Retry) -> None:
        self._httpx, self._inner, self._retry = httpx, inner, retry

    async def handle_async_request(self, request: Any) -> Any:
        if holdfast.current_run() is None:
            return await self._inner.handle_async_request(request)
        await request.aread()
        asking = Asking.of(request)
        if asking.streams:
            return await self._stream(request, asking)

        async def send(path: str, body: Any) -> Answer:
            response = await self._send(request)
            return _answer(response, await _read(response))

        call = holdfast.step(name=asking.name, retry=self._retry)(send)
        try:
            return _response(self._httpx, await call(asking.path, asking.body))
        except Declined as declined:
            return _response(self._httpx, declined.answer)

    async def _send(self, request: Any) -> Any:
        request.headers.setdefault("Idempotency-Key", holdfast.idempotency_key())
        return await self._inner.handle_async_request(request)

    async def _stream(self, request: Any, asking: Asking) -> Any:
        live = LiveStream(self._httpx)

        async def send(path: str, body: Any) -> Answer:
            response = await self._send(request)
            if response.status_code >= 400:
                return _answer(response, await _read(response))
            try:
                live.begins(_head(response))
                return {**_head(response), "pieces": await live.relay(response)}
            finally:
                await response.aclose()

        call = holdfast.step(name=asking.name, retry=self._retry)(send)
        return await live.response(call(asking.path, asking.body))

    async def __aenter__(self) -> Any:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *reason: Any) -> None:
        await self._inner.__aexit__(*reason)

    async def aclose(self) -> None:
        await self._inner.aclose()


class LiveStream:
    """What one streamed call hands on to its reader, live or from the journal."""

    def __init__(self, httpx: Any) -> None:
        self._httpx = httpx
        self._head: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._relay: Relay[str] = Relay()
        self._reading: AsyncGenerator[str, None] | None = None
        self._call: asyncio.Task[Answer]

    # In the step

    def begins(self, head: Answer) -> None:
        if not self._head.done():
            self._head.set_result(head)

    async def relay(self, response: Any) -> list[str]:
        pieces = self._relay.begins()
        try:
            async for piece in response.aiter_text():
                if pieces:
                    self._relay.hand_on(pieces[-1])
                pieces.append(piece)
                if self._relay.left:
                    break
        except self._httpx.HTTPError as error:
            self._relay.refuse_if_read("the model", error)
            raise
        return pieces

    # For the reader

    async def response(self, call: Any) -> Any:
        self._call = asyncio.ensure_future(call)
        await asyncio.wait({self._call, self._head}, return_when=asyncio.FIRST_COMPLETED)
        if self._head.done() and not self._call.done():
            head = self._head.result()
        else:
            try:
                head = await self._call
            except Declined as declined:
                return _response(self._httpx, declined.answer)
        stream = _byte_stream(self._httpx)(self)
        return self._httpx.Response(head["status"], headers=head["headers"], stream=stream)

    async def pieces(self) -> AsyncIterator[bytes]:
        self._reading = self._relay.read(self._call, lambda answer: answer["pieces"])
        async for piece in self._reading:
            yield piece.encode()

    async def cut(self) -> None:
        """The reader has had enough: what came until now is the answer."""
        self._relay.left = True
        if self._reading is not None:
            await self._reading.aclose()
        await asyncio.wait({self._call})


@functools.cache
def _byte_stream(httpx: Any) -> Any:
    class Stream(httpx.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, live: LiveStream) -> None:
            self._live = live

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self._live.pieces()

        async def aclose(self) -> None:
            await self._live.cut()

    return Stream


class SyncTransport:
    """For clients that are used in threads; a streamed answer comes when it is complete."""

    def __init__(self, httpx: Any, inner: Any, retry: holdfast.Retry) -> None:
        self._httpx, self._inner, self._retry = httpx, inner, retry

    def handle_request(self, request: Any) -> Any:
        if holdfast.current_run() is None:
            return self._inner.handle_request(request)
        request.read()
        asking = Asking.of(request)

        def send(path: str, body: Any) -> Answer:
            request.headers.setdefault("Idempotency-Key", holdfast.idempotency_key())
            response = self._inner.handle_request(request)
            try:
                return _answer(response, response.read())
            finally:
                response.close()

        call = holdfast.step(name=asking.name, retry=self._retry)(send)
        try:
            return _response(self._httpx, call(asking.path, asking.body))
        except Declined as declined:
            return _response(self._httpx, declined.answer)

    def __enter__(self) -> Any:
        self._inner.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._inner.__exit__(*reason)

    def close(self) -> None:
        self._inner.close()


async def _read(response: Any) -> bytes:
    try:
        return await response.aread()
    finally:
        await response.aclose()


def _head(response: Any) -> Answer:
    kept = _HEADERS_KEPT if response.status_code < 400 else _HEADERS_OF_ERRORS
    headers = {name: response.headers[name] for name in kept if name in response.headers}
    return {"status": response.status_code, "headers": headers}


def _answer(response: Any, content: bytes) -> Answer:
    answer = _head(response)
    try:
        answer["text"] = content.decode()
    except UnicodeDecodeError:
        answer["data"] = content
    if response.status_code >= 400:
        raise Declined(answer)
    return answer


def _response(httpx: Any, answer: Answer) -> Any:
    headers = dict(answer["headers"])
    if answer["status"] >= 400:
        headers["x-should-retry"] = "false"  # the step has tried; the client need not
    content = answer["text"].encode() if "text" in answer else answer.get("data", b"")
    return httpx.Response(answer["status"], headers=headers, content=content)


def _body(content: bytes, kind: str) -> Any:
    """As it is the same on every replay: uploads have a random line between their parts."""
    _, is_parted, boundary = kind.partition("boundary=")
    if is_parted:
        content = content.replace(boundary.strip('"').encode(), b"boundary")
    try:
        return _json(content.decode())
    except UnicodeDecodeError:
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        return {"bytes": len(content), "digest": digest}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


C = TypeVar("C")


def check_hooks(distribution: str, tested: str, client: object) -> None:
    inner: Any = getattr(client, "_client", None)
    if _httpx_of(inner) is None:
        raise TypeError(
            f"durable() takes a client of OpenAI or Anthropic, sync or async, not {client!r}"
        )
    hooks = {
        "copy": getattr(client, "copy", None),
        "_client._transport": getattr(inner, "_transport", None),
        "_client._mounts": getattr(inner, "_mounts", None),
    }
    require_hooks(distribution, tested, hooks)


def durable_client(client: C, retry: holdfast.Retry | None = None, explain: bool = False) -> C:
    """A copy of a client of OpenAI or Anthropic whose calls are steps."""
    found: Any = client
    inner: Any = found._client
    httpx = _httpx_of(inner)
    kind = AsyncTransport if isinstance(inner, httpx.AsyncClient) else SyncTransport
    wrap = functools.partial(kind, httpx, retry=retry if retry is not None else holdfast.Retry())
    http: Any = copy.copy(inner)
    http._transport = wrap(inner._transport)
    http._mounts = {where: wrap(via) if via else None for where, via in inner._mounts.items()}
    copied = found.copy(http_client=http)
    kept: Any = type(found)
    copied.__class__ = in_runs(kept)
    _settle(copied)
    # It closes what both use when nobody has it any more.
    copied.__dict__["_holdfast_original"] = client
    if explain:
        print(f"{kept.__name__}: inside of runs these are steps:")
        print("  each call, as <method> <path>: its request, and its answer, streamed or not")
    return cast(C, copied)


def _settle(client: Any) -> None:
    """What a client finds out in a thread at its first call, it is told now: a run whose first call
    did so would look for that thread when it is replayed in a process that knows it already."""
    base = sys.modules[f"{type(client).__mro__[1].__module__.partition('.')[0]}._base_client"]
    if hasattr(client, "_platform") and hasattr(base, "get_platform"):
        client._platform = base.get_platform()


def _httpx_of(client: object) -> Any:
    roots = (base.__module__.partition(".")[0] for base in type(client).__mro__)
    return next((sys.modules[root] for root in roots if root in ("httpx", "httpx2")), None)
