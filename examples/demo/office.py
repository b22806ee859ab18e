"""The world outside: tools with effects, each counted by its idempotency key.

It lives in the demo's own process, which nobody kills: what it counts is what really happened. A
request that comes again under a key it knows changes nothing and gets the first answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from examples.demo.story import Call
from holdfast.testing.loopback import LoopbackServer, Request, Response


class Office(LoopbackServer):
    """flaky: tools that answer 503 the first time, before they do anything."""

    def __init__(
        self, on_request: Callable[[Call], None], *, delay: float, flaky: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.effects: dict[str, str] = {}  # by idempotency key
        self._on_request = on_request
        self._delay_seconds = delay
        self._flaky = set(flaky)
        self._lock = threading.Lock()

    def handle(self, request: Request) -> Response:
        if request.method == "GET":
            return Response({"open": True})
        tool = request.path.strip("/")
        key = request.headers.get("idempotency-key") or f"none-{len(self.calls)}"
        label = f"{tool} {request.body['subject']}"
        call = Call("tool", label, key, int(request.headers["x-worker"]), time.time())
        with self._lock:
            self.calls.append(call)
            is_down = tool in self._flaky
            self._flaky.discard(tool)
            if not is_down:
                # The effect comes first: whoever is killed now has done it and does not know.
                self.effects.setdefault(key, label)
        self._on_request(call)
        time.sleep(self._delay_seconds)
        response = Response({"error": "try again"}, 503) if is_down else Response({"done": label})
        call.status, call.ended_at = response.status, time.time()
        return response
