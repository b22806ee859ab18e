"""Sees what an agent does: calls of models, and functions of its file; and ends it in between.

Everything is told to the parent through a pipe, which keeps what was written when the process is
killed. Answers of models are recorded, and given again when the same question is asked: a test of
thirty kills costs what one run of the agent costs.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from holdfast.engine.context import scope

SIGKILL = 9  # not known to `signal` on Windows
TAP = "__holdfast_tap__"
MODEL_PATHS = (
    "/chat/completions",
    "/responses",
    "/messages",
    ":generateContent",
    ":streamGenerateContent",
)


@dataclass
class Call:
    """A call of a function of the agent's file."""

    name: str
    is_leaf: bool = True  # it called no model, and no other function of the file


_inside: ContextVar[Call | None] = ContextVar("_inside", default=None)


class Reporter:
    """Tells the parent what happens, and ends the process when a number of calls is done."""

    def __init__(self, pipe: int, die_after_calls: int | None) -> None:
        self._pipe = pipe
        self._die_after_calls = die_after_calls
        self._done = 0

    def tell(self, **what: Any) -> None:
        os.write(self._pipe, (json.dumps(what) + "\n").encode())

    def begin(self, kind: str, name: str) -> None:
        self.tell(event="call", kind=kind, name=name, step=_step())

    def done(self, kind: str, name: str, **more: Any) -> None:
        self.tell(event="done", kind=kind, name=name, **more)
        self._done += 1
        if self._done == self._die_after_calls:
            os.kill(os.getpid(), SIGKILL)


def _step() -> str | None:
    """The key of the step that this is a part of."""
    where = scope()
    return None if where is None or where.frame.is_root else where.frame.key


class Functions:
    """Sees the functions of one file: the body of each is put into a `with`."""

    def __init__(self, reporter: Reporter, effects: list[str] | None) -> None:
        self._reporter = reporter
        self._effects = effects  # those to be seen; None: all of them

    def compile(self, path: Path) -> CodeType:
        tree = ast.parse(path.read_text(), str(path))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                _tap(node)
        code: CodeType = compile(ast.fix_missing_locations(tree), str(path), "exec")
        return code

    @contextmanager
    def tap(self, name: str) -> Iterator[None]:
        around = _inside.get()
        if around is not None:
            around.is_leaf = False
        kind = "effect" if self._effects is not None or _step() is not None else "plain"
        counts = self._effects is None or name in self._effects
        call = Call(name)
        token = _inside.set(call)
        begun = time.monotonic()
        if counts:
            self._reporter.begin(kind, name)
        try:
            yield
        finally:
            # A generator may be closed in another context than the one that began it.
            if _inside.get() is call:
                _inside.reset(token)
        if counts:
            seconds = time.monotonic() - begun
            self._reporter.done(kind, name, seconds=seconds, is_leaf=call.is_leaf)


def _tap(node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    has_docstring = ast.get_docstring(node, clean=False) is not None
    kept, body = (node.body[:1], node.body[1:]) if has_docstring else ([], node.body)
    seen = ast.Call(ast.Name(TAP, ast.Load()), [ast.Constant(node.name)], [])
    node.body = [*kept, ast.With([ast.withitem(seen)], body or [ast.Pass()])]


class Models:
    """Sees calls of models that are made through httpx, and answers those that were answered."""

    def __init__(self, reporter: Reporter, recording: Path, asked: dict[str, int]) -> None:
        self._reporter = reporter
        self._recording = recording
        self._asked = Counter(asked)  # by the lives before this one
        self._known: dict[str, list[dict[str, Any]]] = {}
        for line in recording.read_text().splitlines() if recording.exists() else ():
            answer = json.loads(line)
            self._known.setdefault(answer["question"], []).append(answer)

    def install(self) -> None:
        """Below every client, so that nobody's own transports are in the way."""
        for name in ("httpx", "httpx2"):
            httpx: Any = sys.modules.get(name)
            if httpx is not None:
                self._tap_async(httpx, httpx.AsyncHTTPTransport)
                self._tap_sync(httpx, httpx.HTTPTransport)

    def _tap_async(self, httpx: Any, transport: Any) -> None:
        plain = transport.handle_async_request

        async def handle(this: Any, request: Any) -> Any:
            if not _asks_model(request):
                return await plain(this, request)
            await request.aread()
            talk = self._begin(request)
            if talk.answer is not None:
                return talk.response(httpx, _async_pieces(httpx, talk, None))
            response = await plain(this, request)
            talk.head(response)
            return talk.response(httpx, _async_pieces(httpx, talk, response))

        transport.handle_async_request = handle

    def _tap_sync(self, httpx: Any, transport: Any) -> None:
        plain = transport.handle_request

        def handle(this: Any, request: Any) -> Any:
            if not _asks_model(request):
                return plain(this, request)
            request.read()
            talk = self._begin(request)
            if talk.answer is not None:
                return talk.response(httpx, httpx.ByteStream(b"".join(talk.told())))
            response = plain(this, request)
            talk.head(response)
            talk.pieces = list(response.iter_raw())
            response.close()
            return talk.response(httpx, httpx.ByteStream(b"".join(talk.told())))

        transport.handle_request = handle

    def _begin(self, request: Any) -> Talk:
        around = _inside.get()
        if around is not None:
            around.is_leaf = False
        question = hashlib.sha256(
            f"{request.method} {request.url}\n".encode() + request.content
        ).hexdigest()
        known = self._known.get(question, [])
        # Asked more often than in the first life: outside of steps, where nothing is on record.
        answer = known[min(self._asked[question], len(known) - 1)] if known else None
        self._asked[question] += 1
        self._reporter.begin("model", request.url.path)
        self._reporter.tell(event="asked", question=question)
        return Talk(self, question, request.url.path, answer)

    def end(self, talk: Talk) -> None:
        if talk.answer is None:
            talk.answer = talk.recorded()
            with self._recording.open("a") as recording:
                recording.write(json.dumps(talk.answer) + "\n")
        self._reporter.done(
            "model", talk.path, seconds=talk.answer["seconds"], tokens=talk.answer["tokens"]
        )


class Talk:
    """One question, and its answer as it comes or was recorded."""

    def __init__(
        self, models: Models, question: str, path: str, answer: dict[str, Any] | None
    ) -> None:
        self._models = models
        self._question = question
        self._begun = time.monotonic()
        self._is_over = False
        self.path = path
        self.answer = answer
        self.pieces: list[bytes] = []
        if answer is not None:
            self._status, self._headers = answer["status"], answer["headers"]
            self.pieces = [base64.b64decode(piece) for piece in answer["pieces"]]

    def head(self, response: Any) -> None:
        self._status = response.status_code
        self._headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in response.headers.raw
        ]

    def response(self, httpx: Any, stream: Any) -> Any:
        return httpx.Response(self._status, headers=self._headers, stream=stream)

    def recorded(self) -> dict[str, Any]:
        return {
            "question": self._question,
            "status": self._status,
            "headers": self._headers,
            "pieces": [base64.b64encode(piece).decode() for piece in self.pieces],
            "seconds": time.monotonic() - self._begun,
            "tokens": _tokens(b"".join(self.pieces)),
        }

    def told(self) -> list[bytes]:
        self.end()
        return self.pieces

    def end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._models.end(self)


def _async_pieces(httpx: Any, talk: Talk, response: Any) -> Any:
    class Pieces(httpx.AsyncByteStream):  # type: ignore[misc]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            if response is None:
                for piece in talk.pieces:
                    yield piece
            else:
                async for piece in response.stream:
                    talk.pieces.append(piece)
                    yield piece
            talk.end()

        async def aclose(self) -> None:
            talk.end()
            if response is not None:
                await response.aclose()

    return Pieces()


def _asks_model(request: Any) -> bool:
    return request.method == "POST" and str(request.url.path).endswith(MODEL_PATHS)


def _tokens(body: bytes) -> int:
    """What the answer says it cost; 0 if it does not, or is compressed."""
    found = 0
    for name in (b'"total_tokens":', b'"totalTokenCount":'):
        for part in body.split(name)[1:]:
            digits = part.strip().partition(b",")[0].partition(b"}")[0].strip()
            found = max(found, int(digits) if digits.isdigit() else 0)
    return found
