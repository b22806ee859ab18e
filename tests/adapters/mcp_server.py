"""MCP servers on standard input and output, which note in a file who asks them for what.

    python mcp_server.py          # speaks the protocol by itself: it is there in a moment
    python mcp_server.py sdk      # MCP's own server, which takes seconds to import

In the folder MCP_FOLDER, `noted` is that file. A number in `refuses` says how often it does not
start, one in `hangs` how often it answers nothing. When there is a file `changed`, it has one more
tool. `fragile` dies at its first call.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("MCP_FOLDER", os.devnull))
_NOT_FOUND = -32601


def note(what: str, about: object = None) -> None:
    if not FOLDER.is_dir():
        return  # it is no process of its own
    noted = {"agent": os.getppid(), "server": os.getpid(), "what": what, "about": about}
    with (FOLDER / "noted").open("a") as file:
        file.write(json.dumps(noted) + "\n")


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    note("called", [a, b])
    return a + b


def fragile(a: int) -> int:
    """Does not survive its first call."""
    if not (FOLDER / "died").exists():
        (FOLDER / "died").touch()
        os._exit(1)
    note("called", [a])
    return a


def subtract(a: int, b: int) -> int:
    """Subtracts two numbers."""
    return a - b


def tools() -> list[Callable[..., int]]:
    more = [subtract] if (FOLDER / "changed").exists() else []
    return [add, fragile, *more]


# By itself


def serve() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            answer["result"] = ANSWERS[message["method"]](message.get("params") or {})
        except KeyError as error:
            answer["error"] = {"code": _NOT_FOUND, "message": f"there is no {error}"}
        print(json.dumps(answer), flush=True)


def _initialize(params: dict[str, Any]) -> dict[str, Any]:
    info = {"name": "notes", "version": "1"}
    version = params["protocolVersion"]
    return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}


def _list(params: dict[str, Any]) -> dict[str, Any]:
    note("listed")
    return {"tools": [_described(tool) for tool in tools()]}


def _described(tool: Callable[..., int]) -> dict[str, Any]:
    names = [name for name in tool.__annotations__ if name != "return"]
    numbers = {name: {"type": "integer"} for name in names}
    schema = {"type": "object", "properties": numbers, "required": names}
    return {"name": tool.__name__, "description": tool.__doc__, "inputSchema": schema}


def _call(params: dict[str, Any]) -> dict[str, Any]:
    by_name = {tool.__name__: tool for tool in tools()}
    result = by_name[params["name"]](**params["arguments"])
    return {"content": [{"type": "text", "text": str(result)}], "isError": False}


ANSWERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "initialize": _initialize,
    "ping": lambda params: {},
    "tools/list": _list,
    "tools/call": _call,
}


# By the SDK


def serve_by_sdk() -> None:
    Server: Any
    try:
        Server = importlib.import_module("mcp.server.mcpserver").MCPServer
    except ImportError:  # before 2.0
        Server = importlib.import_module("mcp.server.fastmcp").FastMCP

    class Noting(Server):  # type: ignore[misc]
        async def list_tools(self, *args: Any, **named: Any) -> Any:
            note("listed")
            return await super().list_tools(*args, **named)

    server = Noting("notes")
    for tool in tools():
        server.tool()(tool)
    server.run()


def is_left(name: str) -> bool:
    """One less is left now."""
    path = FOLDER / name
    left = int(path.read_text()) if path.exists() else 0
    path.write_text(str(max(0, left - 1)))
    return left > 0


def main() -> None:
    if is_left("refuses"):
        note("refused")
        sys.exit(1)
    if is_left("hangs"):
        for _ in sys.stdin:
            pass
    note("started")
    if sys.argv[1:] == ["sdk"]:
        serve_by_sdk()
    else:
        serve()


if __name__ == "__main__":
    main()
