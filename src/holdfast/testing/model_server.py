"""A scripted model: a server on loopback that speaks OpenAI's chat completions and responses,
Anthropic's messages and Gemini's contents.

    with ModelServer({"weather": "Sunny.", "news": [Reply(status=500), "None."]}) as model:
        client = OpenAI(base_url=model.url, api_key="any")

A script is a mapping from a part of the prompt to what is answered, a sequence by turn of the
conversation, or a function. What a turn is comes from the request alone, so that a call which is
made again after a crash gets the same answer. Failures can be ordered on top (`fail`), and every
request is kept (`requests`); both also over HTTP, for a server in a process of its own:

    python -m holdfast.testing.model_server --script replies.json     # prints its address
    GET /requests    POST /fail {"status": 429, "retry_after": 1, "times": 2, "match": "weather"}

It counts no tokens in earnest: words stand for them. A stream arrives line by line, or in pieces of
`Reply.chunk` characters; `on_piece` is called before each event of one, and may block or break it.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.testing.loopback import LoopbackServer, Request, Response
from holdfast.testing.model_wire import Answer, ChatCompletions, Dialect, Messages, Responses
from holdfast.testing.model_wire import Reply as Reply
from holdfast.testing.model_wire_gemini import Gemini

DIALECTS: Sequence[Dialect] = (ChatCompletions(), Responses(), Messages(), Gemini())

Line = Reply | str
Script = Mapping[str, Line | Sequence[Line]] | Sequence[Line] | Callable[["Asked"], Line]


@dataclass
class Asked:
    """One request, as the log keeps it."""

    number: int  # from 1, in order of arrival
    prompt: str  # the last user message
    turn: int  # how often the model has spoken before, from 0
    idempotency_key: str | None
    headers: Mapping[str, str]
    body: Any
    at: float  # seconds since 1970
    status: int | None = None  # None while it is in flight
    answered_at: float | None = None
    hung_up: bool = False  # the caller was gone when the answer was ready


@dataclass
class Failure:
    """The next `times` requests whose prompt holds `match` fail."""

    status: int
    retry_after: float | None = None
    times: int = 1
    match: str = ""


@dataclass
class _Rules:
    script: Script
    played: dict[str, int] = field(default_factory=dict)

    def reply(self, asked: Asked) -> Reply:
        found = self._find(asked)
        return Reply(text=found) if isinstance(found, str) else found

    def _find(self, asked: Asked) -> Line:
        script = self.script
        if callable(script):
            return script(asked)
        if not isinstance(script, Mapping):
            return script[min(asked.turn, len(script) - 1)]
        for part, answers in script.items():
            if part in asked.prompt:
                if isinstance(answers, Reply | str):
                    return answers
                n = self.played.get(part, 0)
                self.played[part] = n + 1
                return answers[min(n, len(answers) - 1)]
        return Reply(status=400, text=f"no line of the script matches the prompt {asked.prompt!r}")


class ModelServer(LoopbackServer):
    """on_request: called before each answer on the connection's thread, and may block it.

    on_piece: called before each event of a streamed answer with its number, from 0; what it raises
    cuts the connection.
    """

    def __init__(
        self,
        script: Script,
        *,
        port: int = 0,
        on_request: Callable[[Asked], object] | None = None,
        on_piece: Callable[[Asked, int], object] | None = None,
    ) -> None:
        super().__init__(port=port)
        self._on_piece = on_piece
        self._rules = _Rules(script)
        self._on_request = on_request
        self._lock = threading.Lock()
        self._failures: list[Failure] = []
        self._in_flight: dict[int, Asked] = {}  # by the identity of their request
        self.requests: list[Asked] = []

    @property
    def url(self) -> str:
        return f"{self.address}/v1"

    def fail(
        self, status: int, *, retry_after: float | None = None, times: int = 1, match: str = ""
    ) -> None:
        with self._lock:
            self._failures.append(Failure(status, retry_after, times, match))

    def handle(self, request: Request) -> Response:
        path = request.path.partition("?")[0]
        dialect = next((one for one in DIALECTS if one.speaks(path)), None)
        if request.method == "POST" and dialect is not None:
            return self._complete(request, dialect)
        match request.method, request.path:
            case "GET", "/requests":
                return Response([asdict(asked) for asked in self.requests])
            case "POST", "/fail":
                self.fail(**request.body)
                return Response({})
        return _error(404, f"there is nothing at {request.path}")

    def answering(self, request: Request, response: Response, *, hung_up: bool) -> None:
        asked = self._in_flight.pop(id(request), None)
        if asked is not None:
            asked.hung_up = hung_up
            asked.answered_at = time.time()
            asked.status = response.status

    def _complete(self, request: Request, dialect: Dialect) -> Response:
        with self._lock:
            asked = _asked(request, dialect, len(self.requests) + 1)
            self.requests.append(asked)
            self._in_flight[id(request)] = asked
            reply = self._failure(asked) or self._rules.reply(asked)
        if self._on_request is not None:
            self._on_request(asked)
        if reply.delay:
            time.sleep(reply.delay)
        if reply.status != 200:
            return _error(reply.status, reply.text or "scripted", reply.retry_after, reply.code)
        model = asked.body.get("model", "scripted")
        words = len(asked.prompt.split())
        usage = (asked.body.get("stream_options") or {}).get("include_usage", False)
        answer = Answer(asked.number, asked.turn, int(asked.at), model, reply, words, usage)
        if dialect.streams(request.path.partition("?")[0], request.body):
            events = self._streamed(asked, dialect.events(answer))
            return Response(events, headers={"Content-Type": "text/event-stream"})
        return Response(dialect.whole(answer))

    def _streamed(self, asked: Asked, events: Iterator[str]) -> Iterator[bytes]:
        for number, event in enumerate(events):
            if self._on_piece is not None:
                self._on_piece(asked, number)
            yield event.encode()

    def _failure(self, asked: Asked) -> Reply | None:
        for failure in self._failures:
            if failure.times > 0 and failure.match in asked.prompt:
                failure.times -= 1
                return Reply(status=failure.status, retry_after=failure.retry_after)
        return None


def _asked(request: Request, dialect: Dialect, number: int) -> Asked:
    prompt, turn = dialect.said(request.body)
    return Asked(
        number=number,
        prompt=prompt,
        turn=turn,
        idempotency_key=request.headers.get("idempotency-key"),
        headers=request.headers,
        body=request.body,
        at=time.time(),
    )


def _error(
    status: int, message: str, retry_after: float | None = None, code: str | None = None
) -> Response:
    kinds = {401: "authentication_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "api_error" if status >= 500 else "invalid_request_error")
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    error = {"message": message, "type": kind, "code": code}
    return Response({"type": "error", "error": error}, status, headers)


def load_script(data: Any) -> Script:
    """A script as JSON writes it: replies are strings or objects with the fields of Reply."""

    def reply(value: Any) -> Any:
        if isinstance(value, list):
            return [reply(one) for one in value]
        return value if isinstance(value, str) else Reply(**value)

    if isinstance(data, dict):
        return {part: reply(value) for part, value in data.items()}
    return [reply(value) for value in data]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A scripted chat-completions server.")
    parser.add_argument("--script", type=Path, required=True, help="a JSON file; - reads stdin")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args(arguments)
    text = sys.stdin.read() if str(given.script) == "-" else given.script.read_text("utf-8")
    server = ModelServer(load_script(json.loads(text)), port=given.port).start()
    print(server.address, flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        server.stop()


if __name__ == "__main__":
    main()
