"""Tools of MCP servers, used by an agent of the Microsoft Agent Framework."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agent_framework import Agent, MCPStdioTool, MCPStreamableHTTPTool
from agent_framework.openai import OpenAIChatCompletionClient

import holdfast
from holdfast.adapters.agent_framework import durable
from holdfast.testing.model_server import ModelServer, Script
from tests.adapters import noted
from tests.adapters.harness import Zygote
from tests.adapters.mcp_http import OverHttp
from tests.adapters.one.agent_framework_cases import notes, streams_of

CASES = "agent_framework_cases"


def adding(model: ModelServer, *tools: Any, **options: Any) -> Any:
    client = OpenAIChatCompletionClient(model="m", api_key="any", base_url=model.url)
    return durable(Agent(client, name="adds", tools=list(tools)), **options)


async def results(
    script: Script, server: MCPStdioTool | MCPStreamableHTTPTool, *, runs: int = 1, **options: Any
) -> list[Any]:
    """The messages of the last request, and the keys of the last run."""
    with ModelServer(script) as model:
        agent = adding(model, server, **options)
        keys = await noted.added(agent, "add", runs=runs)
        await agent.client.client.close()
        return [model.requests[-1].body["messages"], keys]


async def test_each_run_has_one_session(tmp_path: Path) -> None:
    told, keys = await results(noted.PARALLEL, notes(tmp_path, noted.BY_SDK), runs=2)
    assert "/mcp.notes.list_tools#0" in keys
    assert {f"/adds.add:call_{call}#0" for call in ("0_0", "0_1", "1_0")} <= keys
    noted.check_each_run_had_one(tmp_path, told)


@noted.EVERY
def test_each_process_that_calls_has_one_session(zygote: Zygote, every: int) -> None:
    noted.check_sessions(zygote, "adds", every=every)


@pytest.mark.filterwarnings("ignore:ping is removed")  # says MCP to the framework
async def test_a_server_that_is_connected_is_used_as_it_is(tmp_path: Path) -> None:
    async with notes(tmp_path) as server:
        await results(noted.PARALLEL, server, runs=2)
    assert noted.Noted(tmp_path).sessions == 1


async def test_a_server_that_is_gone_is_tried_again(tmp_path: Path) -> None:
    noted.refuse_once(tmp_path)
    await results(noted.FRAGILE, notes(tmp_path), tools=noted.SOON)
    noted.check_opened_anew(tmp_path)


async def test_a_server_that_stays_away_is_what_the_model_is_told(tmp_path: Path) -> None:
    told, _ = await results(noted.FRAGILE, notes(tmp_path), tools=noted.ONCE)
    assert "Error" in str(told)
    assert noted.Noted(tmp_path).calls == [[1, 2], [3, 4]]


async def test_a_server_for_one_call_of_the_agent_is_reached_too(tmp_path: Path) -> None:
    with ModelServer(noted.PARALLEL) as model:
        server = notes(tmp_path)
        agent, with_server = adding(model), adding(model, server)

        @holdfast.workflow
        async def asks() -> str:
            answer: str = (await agent.run("add", tools=[server])).text
            return answer

        streams = streams_of(with_server)
        async with holdfast.Holdfast(":memory:", workflows=[asks, streams]) as app:
            assert await asyncio.wait_for((await app.start(asks)).result(), 120) == "Added."
            streamed = await asyncio.wait_for((await app.start(streams, "add")).result(), 120)
        for one in (agent, with_server):
            await one.client.client.close()
    assert streamed[-1] == "Added."
    assert noted.Noted(tmp_path).calls_by_session == [3, 3]


async def test_a_connection_that_is_not_open_is_an_error_that_names_the_cure(
    tmp_path: Path,
) -> None:
    server = notes(tmp_path)
    server._connection = Any  # type: ignore[assignment]
    with ModelServer(noted.PARALLEL) as model:
        agent = adding(model, server)
        async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
            with pytest.raises(holdfast.RunFailed) as failed:
                await asyncio.wait_for((await app.start(agent, "add")).result(), 120)
    assert "async with agent" in str(failed.value.__cause__)


async def test_a_server_that_has_forgotten_the_session_is_given_another() -> None:
    with OverHttp() as server:
        await results(noted.FRAGILE, MCPStreamableHTTPTool("notes", server.url), tools=noted.SOON)
    server.check_opened_anew()
