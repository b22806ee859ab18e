"""A small HTTP server on loopback that speaks JSON, for tests and demos.

It lives in a thread of the process that starts it, so that it outlives the workers a test kills.
Each connection has a thread of its own: a handler may block. It is not meant for load, nor for a
network: it listens on 127.0.0.1 only and believes whatever it is sent.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

BODY_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]  # names in lower case
    body: Any


@dataclass(frozen=True)
class Response:
    body: Any = None  # bytes are sent as they are, an iterator of them in pieces, else as JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class LoopbackServer:
    """Subclasses say what to answer: `handle(request)`, called on the connection's own thread."""

    def __init__(self, *, port: int = 0) -> None:
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = _Server(("127.0.0.1", port), handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="holdfast-loopback", daemon=True
        )

    def handle(self, request: Request) -> Response:
        raise NotImplementedError

    def answering(self, request: Request, response: Response, *, hung_up: bool) -> None:
        """Called right before an answer is sent; `hung_up`: there is nobody left to get it."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Cuts the connections that are open, too."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: set[socket.socket] = set()
        self._serving: set[threading.Thread] = set()
        super().__init__(address, handler)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        thread = threading.current_thread()
        self._open.add(request)
        self._serving.add(thread)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)
            self._serving.discard(thread)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed hangs up in the middle: that is what we are here for."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        super().server_close()
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has just gone by itself
        for thread in list(self._serving):
            thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one write: two would wait for each other's acknowledgement
    owner: LoopbackServer

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > BODY_BYTES_MAX:
            self.close_connection = True
            self._send(Response({"error": {"message": "the body is too large"}}, 413))
            return
        raw = self.rfile.read(length)
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            request = Request(self.command, self.path, headers, json.loads(raw) if raw else None)
        except ValueError:
            self._send(Response({"error": {"message": "the body is not JSON"}}, 400))
            return
        response = self.owner.handle(request)
        self.owner.answering(request, response, hung_up=self._hung_up())
        self._send(response)

    def _hung_up(self) -> bool:
        """A killed caller's socket is closed; writing to it would succeed all the same."""
        self.connection.settimeout(0)
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.connection.settimeout(None)

    def _send(self, response: Response) -> None:
        body = response.body
        self.send_response(response.status)
        for name, value in {"Content-Type": "application/json", **response.headers}.items():
            self.send_header(name, value)
        if isinstance(body, Iterator):
            self._send_in_pieces(body)
            return
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def _send_in_pieces(self, pieces: Iterator[bytes]) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are logged by whoever owns the server, not to stderr."""
