"""Tools of MCP servers, used by an agent of the Microsoft Agent Framework."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from agent_framework import Agent, MCPStdioTool
from agent_framework.openai import OpenAIChatCompletionClient

import holdfast
from holdfast.adapters.agent_framework import durable
from holdfast.testing.model_server import ModelServer, Reply

SCRIPT = [
    Reply(tool_calls=[("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})]),
    Reply(text="Added."),
]


def adding(model: ModelServer, log: Path) -> Any:
    server = MCPStdioTool(
        name="notes",
        command=sys.executable,
        args=[str(Path(__file__).with_name("mcp_server.py"))],
        env={**os.environ, "MCP_LOG": str(log)},
        approval_mode="never_require",
    )
    client = OpenAIChatCompletionClient(model="m", api_key="any", base_url=model.url)
    return durable(Agent(client, name="adds", tools=[server]))


async def test_tools_of_mcp_servers_are_steps_in_one_session(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with ModelServer(SCRIPT) as model:
        agent = adding(model, log)
        async with agent, holdfast.Holdfast(":memory:", workflows=[agent]) as app:
            for _ in range(2):
                run = await app.start(agent, "add")
                assert await asyncio.wait_for(run.result(), 60) == "Added."
            keys = [entry.key for entry in await app.history(run.id)]
        told = [one["content"] for one in model.requests[1].body["messages"][-2:]]
        await agent.client.client.close()
    assert {"/adds.add:call_0_0#0", "/adds.add:call_0_1#0"} <= {*keys}
    assert told == ['{"result": 3}', '{"result": 7}']
    assert log.read_text() == "started\n"


async def test_a_server_that_is_not_connected_is_an_error_that_names_the_cure(
    tmp_path: Path,
) -> None:
    with ModelServer(SCRIPT) as model:
        agent = adding(model, tmp_path / "log")
        async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
            with pytest.raises(holdfast.RunFailed) as failed:
                await asyncio.wait_for((await app.start(agent, "add")).result(), 60)
    assert "async with agent" in str(failed.value.__cause__)
