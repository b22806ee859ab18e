"""Tools of MCP servers, used by an agent of Google ADK."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from mcp import StdioServerParameters

import holdfast
from holdfast.adapters.google_adk import durable
from holdfast.testing.model_server import ModelServer, Reply
from tests.adapters.one.google_adk_parts import clients

SCRIPT = [
    Reply(tool_calls=[("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})]),
    Reply(tool_calls=[("add", {"a": 5, "b": 6})]),
    Reply(text="Added."),
]


def notes(log: Path) -> McpToolset:
    server = Path(__file__).with_name("mcp_server.py")
    environment = {**os.environ, "MCP_LOG": str(log)}
    params = StdioServerParameters(command=sys.executable, args=[str(server)], env=environment)
    return McpToolset(connection_params=StdioConnectionParams(server_params=params, timeout=60))


async def test_tools_of_mcp_servers_are_steps_in_one_session(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with ModelServer(SCRIPT) as model:
        async with clients() as connect:
            toolset = notes(log)
            agent = durable(LlmAgent(name="adds", model=connect(model), tools=[toolset]))
            async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
                for _ in range(2):  # the second finds a session that is open
                    run = await app.start(agent, "add")
                    assert await asyncio.wait_for(run.result(), 60) == "Added."
                    keys = [entry.key for entry in await app.history(run.id)]
                    assert "/mcp.list_tools#0" in keys
                    assert {f"/add:call_{call}#0" for call in ("0_0", "0_1", "1_0")} <= set(keys)
            await toolset.close()
        assert log.read_text() == "started\n"
        told = str(model.requests[2].body["contents"])
        assert all(f"'{total}'" in told for total in (3, 7, 11))
