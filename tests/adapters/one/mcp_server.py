"""An MCP server on standard input and output; a line in a file for each time it is started."""

from __future__ import annotations

import os

from mcp.server.mcpserver import MCPServer

server = MCPServer("notes")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


if __name__ == "__main__":
    with open(os.environ["MCP_LOG"], "a") as log:
        log.write("started\n")
    server.run()
