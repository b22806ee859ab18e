"""An MCP server by streamable HTTP and by its forerunner SSE, in a thread of the test."""

from __future__ import annotations

import json
import queue
import uuid
from collections.abc import Iterator
from typing import Any

from holdfast.testing.loopback import LoopbackServer, Request, Response
from tests.adapters import mcp_server


class OverHttp(LoopbackServer):
    """The same tools, by HTTP. `fragile` makes it forget all its sessions at first, as if it had
    been restarted."""

    def __init__(self) -> None:
        super().__init__()
        self._sessions: set[str] = set()
        self._streams: dict[str, queue.SimpleQueue[bytes | None]] = {}  # by SSE
        self._died = False
        self.calls: list[tuple[str, list[int]]] = []
        self.listed = 0

    @property
    def url(self) -> str:
        return f"{self.address}/mcp"

    @property
    def sse_url(self) -> str:
        return f"{self.address}/sse"

    def stop(self) -> None:
        self._forget()
        super().stop()

    def handle(self, request: Request) -> Response:
        path, _, session = request.path.partition("?session=")
        if path == "/sse":
            return self._stream() if request.method == "GET" else self._streamed(session, request)
        if request.method != "POST":
            return Response(status=405)
        method, known = request.body["method"], request.headers.get("mcp-session-id", "")
        if method == "initialize":
            known = uuid.uuid4().hex
            self._sessions.add(known)
        self._die_if_fragile(request.body)
        if known not in self._sessions and method != "server/discover":
            return Response(status=404)
        if "id" not in request.body:
            return Response(b"", status=202)
        answer = self._answered(known, request.body)
        return Response(answer, headers={"mcp-session-id": known} if known else {})

    def _die_if_fragile(self, body: Any) -> None:
        if body["method"] == "tools/call" and body["params"]["name"] == "fragile":
            if not self._died:
                self._died = True
                self._forget()

    def _forget(self) -> None:
        self._sessions.clear()
        while self._streams:
            self._streams.popitem()[1].put(None)

    # By SSE: answers come in the stream that the session began with

    def _stream(self) -> Response:
        session = uuid.uuid4().hex
        stream = self._streams[session] = queue.SimpleQueue()
        stream.put(f"event: endpoint\ndata: /sse?session={session}\n\n".encode())

        def pieces() -> Iterator[bytes]:
            while (piece := stream.get()) is not None:
                yield piece

        return Response(pieces(), headers={"Content-Type": "text/event-stream"})

    def _streamed(self, session: str, request: Request) -> Response:
        self._die_if_fragile(request.body)
        if session not in self._streams:
            return Response(status=404)
        if "id" in request.body:
            answer = json.dumps(self._answered(session, request.body))
            self._streams[session].put(f"event: message\ndata: {answer}\n\n".encode())
        return Response(b"", status=202)

    def _answered(self, session: str, body: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": body["id"], **self._answer(session, body)}

    def _answer(self, session: str, body: Any) -> dict[str, Any]:
        params = body.get("params") or {}
        if body["method"] not in mcp_server.ANSWERS:
            return {"error": {"code": -32601, "message": "there is no such method"}}
        self.listed += body["method"] == "tools/list"
        if body["method"] == "tools/call":
            given = params["arguments"]
            self.calls.append((session, list(given.values())))
            text = str(sum(given.values()))
            return {"result": {"content": [{"type": "text", "text": text}], "isError": False}}
        return {"result": mcp_server.ANSWERS[body["method"]](params)}

    def check_opened_anew(self) -> None:
        """After FRAGILE."""
        (first, one), (second, two), (third, three) = self.calls
        assert [one, two, three] == [[1, 2], [7], [3, 4]]
        assert first != second == third
