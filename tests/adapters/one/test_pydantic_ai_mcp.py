"""Tools of MCP servers, used by an agent of Pydantic AI."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import holdfast
from holdfast.adapters.pydantic_ai import durable
from holdfast.testing.model_server import ModelServer, Reply

SCRIPT = [
    Reply(tool_calls=[("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})]),
    Reply(tool_calls=[("add", {"a": 5, "b": 6})]),
    Reply(text="Added."),
]


async def test_tools_of_mcp_servers_are_steps_in_one_session(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = Path(__file__).with_name("mcp_server.py")
    environment = {**os.environ, "MCP_LOG": str(log)}
    with ModelServer(SCRIPT) as model:
        provider = OpenAIProvider(base_url=model.url, api_key="any")
        transport = StdioTransport(sys.executable, [str(server)], env=environment, keep_alive=False)
        agent = durable(
            Agent(
                OpenAIChatModel("m", provider=provider),
                name="adds",
                toolsets=[MCPToolset(transport, id="sums", init_timeout=60)],
            )
        )
        async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
            for started in (1, 2):  # what the first has found out, the second asks for all the same
                run = await app.start(agent, "add")
                assert await asyncio.wait_for(run.result(), 120) == "Added."
                keys = [entry.key.rpartition("/")[2] for entry in await app.history(run.id)]
                assert keys.count("adds__mcp_server__sums.get_tools#0") == 1
                assert {f"adds.add:call_{call}#0" for call in ("0_0", "0_1", "1_0")} <= set(keys)
                assert log.read_text() == "started\n" * started
        await provider.client.close()
