"""An MCP server by streamable HTTP, in a thread of the test."""

from __future__ import annotations

import uuid
from typing import Any

from holdfast.testing.loopback import LoopbackServer, Request, Response
from tests.adapters import mcp_server


class OverHttp(LoopbackServer):
    """The same tools, by streamable HTTP. `fragile` makes it forget all its sessions at first, as
    if it had been restarted."""

    def __init__(self) -> None:
        super().__init__()
        self._sessions: set[str] = set()
        self._died = False
        self.calls: list[tuple[str, list[int]]] = []

    @property
    def url(self) -> str:
        return f"{self.address}/mcp"

    def handle(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(status=405)
        method, known = request.body["method"], request.headers.get("mcp-session-id", "")
        if method == "initialize":
            known = uuid.uuid4().hex
            self._sessions.add(known)
        if method == "tools/call" and request.body["params"]["name"] == "fragile":
            if not self._died:
                self._died = True
                self._sessions.clear()
        if known not in self._sessions and method != "server/discover":
            return Response(status=404)
        if "id" not in request.body:
            return Response(b"", status=202)
        answer = {"jsonrpc": "2.0", "id": request.body["id"], **self._answer(known, request.body)}
        return Response(answer, headers={"mcp-session-id": known} if known else {})

    def _answer(self, session: str, body: Any) -> dict[str, Any]:
        params = body.get("params") or {}
        if body["method"] not in mcp_server.ANSWERS:
            return {"error": {"code": -32601, "message": "there is no such method"}}
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
