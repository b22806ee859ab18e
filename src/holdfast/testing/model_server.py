"""A scripted model: an OpenAI-compatible chat-completions server on loopback.

    with ModelServer({"weather": "Sunny.", "news": [Reply(status=500), "None."]}) as model:
        client = OpenAI(base_url=model.url, api_key="any")

A script is a mapping from a part of the prompt to what is answered, a sequence by turn of the
conversation, or a function. What a turn is comes from the request alone, so that a call which is
made again after a crash gets the same answer. Failures can be ordered on top (`fail`), and every
request is kept (`requests`); both also over HTTP, for a server in a process of its own:

    python -m holdfast.testing.model_server --script replies.json     # prints its address
    GET /requests    POST /fail {"status": 429, "retry_after": 1, "times": 2, "match": "weather"}

It counts no tokens in earnest, and a stream arrives in one piece.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.testing.loopback import LoopbackServer, Request, Response


@dataclass(frozen=True, kw_only=True)
class Reply:
    text: str = ""
    tool_calls: Sequence[tuple[str, Mapping[str, Any]]] = ()  # names and arguments
    status: int = 200
    retry_after: float | None = None  # seconds
    delay: float = 0.0  # seconds until the answer


Answer = Reply | str
Script = Mapping[str, Answer | Sequence[Answer]] | Sequence[Answer] | Callable[["Asked"], Answer]


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

    def _find(self, asked: Asked) -> Answer:
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
    """on_request: called before each answer on the connection's thread, and may block it."""

    def __init__(
        self,
        script: Script,
        *,
        port: int = 0,
        on_request: Callable[[Asked], object] | None = None,
    ) -> None:
        super().__init__(port=port)
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
        match request.method, request.path:
            case "POST", "/v1/chat/completions":
                return self._complete(request)
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

    def _complete(self, request: Request) -> Response:
        with self._lock:
            asked = _asked(request, len(self.requests) + 1)
            self.requests.append(asked)
            self._in_flight[id(request)] = asked
            reply = self._failure(asked) or self._rules.reply(asked)
        if self._on_request is not None:
            self._on_request(asked)
        if reply.delay:
            time.sleep(reply.delay)
        if reply.status != 200:
            return _error(reply.status, reply.text or "scripted", reply.retry_after)
        if request.body.get("stream"):
            return _streamed(reply, asked)
        return Response(_completion(reply, asked))

    def _failure(self, asked: Asked) -> Reply | None:
        for failure in self._failures:
            if failure.times > 0 and failure.match in asked.prompt:
                failure.times -= 1
                return Reply(status=failure.status, retry_after=failure.retry_after)
        return None


def _asked(request: Request, number: int) -> Asked:
    messages = request.body.get("messages", [])
    spoken = [message.get("role") for message in messages]
    said = [_text(message.get("content")) for message in messages if message.get("role") == "user"]
    return Asked(
        number=number,
        prompt=said[-1] if said else "",
        turn=spoken.count("assistant"),
        idempotency_key=request.headers.get("idempotency-key"),
        headers=request.headers,
        body=request.body,
        at=time.time(),
    )


def _text(content: Any) -> str:
    """A message's content is a string, or a list of parts."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def _error(status: int, message: str, retry_after: float | None = None) -> Response:
    kind = "rate_limit_error" if status == 429 else "api_error"
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    return Response({"error": {"message": message, "type": kind}}, status, headers)


def _completion(reply: Reply, asked: Asked) -> dict[str, Any]:
    message = {"role": "assistant", **_spoken(reply)}
    return {
        **_frame(asked, "chat.completion"),
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(reply)}],
        "usage": _usage(reply, asked),
    }


def _streamed(reply: Reply, asked: Asked) -> Response:
    def chunk(delta: dict[str, Any], finish: str | None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return json.dumps({**_frame(asked, "chat.completion.chunk"), "choices": [choice]})

    spoken = _spoken(reply)
    calls = [{"index": i, **call} for i, call in enumerate(spoken.pop("tool_calls", []))]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in reply.text.splitlines(keepends=True)]
    deltas += [{"tool_calls": [call]} for call in calls]
    lines = [*(chunk(delta, None) for delta in deltas), chunk({}, _finish(reply)), "[DONE]"]
    body = "".join(f"data: {line}\n\n" for line in lines)
    return Response(body.encode(), headers={"Content-Type": "text/event-stream"})


def _frame(asked: Asked, kind: str) -> dict[str, Any]:
    model = asked.body.get("model", "scripted")
    created = int(asked.at)
    return {"id": f"chatcmpl-{asked.number}", "object": kind, "created": created, "model": model}


def _spoken(reply: Reply) -> dict[str, Any]:
    if not reply.tool_calls:
        return {"content": reply.text}
    calls = [
        {
            "id": f"call_{i}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(dict(arguments))},
        }
        for i, (name, arguments) in enumerate(reply.tool_calls)
    ]
    return {"content": reply.text or None, "tool_calls": calls}


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.tool_calls else "stop"


def _usage(reply: Reply, asked: Asked) -> dict[str, int]:
    prompt, completion = len(asked.prompt.split()), len(reply.text.split())
    total = prompt + completion
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}


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
