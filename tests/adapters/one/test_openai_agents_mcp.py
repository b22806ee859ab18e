"""Tools of MCP servers, used by an agent of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import openai
import pytest
from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio

import holdfast
from holdfast.adapters.openai_agents import durable
from holdfast.testing.model_server import ModelServer, Reply

set_tracing_disabled(True)

SCRIPT = [
    Reply(tool_calls=[("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})]),
    Reply(tool_calls=[("add", {"a": 5, "b": 6})]),
    Reply(text="Added."),
]


def notes(log: Path) -> MCPServerStdio:
    server = Path(__file__).with_name("mcp_server.py")
    environment = {**os.environ, "MCP_LOG": str(log)}
    params: Any = {"command": sys.executable, "args": [str(server)], "env": environment}
    return MCPServerStdio(params, name="notes", client_session_timeout_seconds=60)


def adds(agent: Any, *, streamed: bool) -> Any:
    @holdfast.workflow
    async def adds() -> Any:
        if not streamed:
            return (await Runner.run(agent, "add")).final_output
        result = Runner.run_streamed(agent, "add")
        async for _ in result.stream_events():
            pass
        return result.final_output

    return adds


@pytest.mark.parametrize("streamed", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_tools_of_mcp_servers_are_steps_in_one_session(
    tmp_path: Path, streamed: bool
) -> None:
    log = tmp_path / "log"
    with ModelServer(SCRIPT) as model:
        client = openai.AsyncOpenAI(base_url=model.url, api_key="any")
        chat = OpenAIChatCompletionsModel("m", client)
        agent = durable(Agent(name="adds", model=chat, mcp_servers=[notes(log)]))
        workflow = adds(agent, streamed=streamed)
        async with holdfast.Holdfast(":memory:", workflows=[workflow]) as app, client:
            for started in (1, 2):
                run = await app.start(workflow)
                assert await asyncio.wait_for(run.result(), 120) == "Added."
                keys = [entry.key for entry in await app.history(run.id)]
                assert "/mcp.notes.list_tools#2" in keys
                assert {f"/call_{call}@0/add#0" for call in ("0_0", "0_1", "1_0")} <= set(keys)
                assert log.read_text() == "started\n" * started
        told = [message["content"] for message in model.requests[2].body["messages"]]
        assert all(f"'{total}'" in str(told) for total in (3, 7, 11))


async def test_a_server_that_is_connected_is_used_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with ModelServer(SCRIPT) as model:
        client = openai.AsyncOpenAI(base_url=model.url, api_key="any")
        chat = OpenAIChatCompletionsModel("m", client)
        async with client, notes(log) as server:
            agent = durable(Agent(name="adds", model=chat, mcp_servers=[server]))
            async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
                for _ in range(2):
                    run = await app.start(agent, "add")
                    assert await asyncio.wait_for(run.result(), 120) == "Added."
            assert log.read_text() == "started\n"
