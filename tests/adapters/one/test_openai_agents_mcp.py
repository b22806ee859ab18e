"""Tools of MCP servers, used by an agent of the OpenAI Agents SDK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
from agents import Agent, OpenAIChatCompletionsModel, Runner
from agents.mcp import MCPServer, MCPServerSse, MCPServerStreamableHttp

import holdfast
from holdfast.adapters.openai_agents import durable
from holdfast.testing.model_server import ModelServer, Script
from tests.adapters import noted
from tests.adapters.harness import Zygote
from tests.adapters.mcp_http import OverHttp
from tests.adapters.one.openai_agents_cases import notes

CASES = "openai_agents_cases"


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


async def results(
    script: Script,
    server: MCPServer,
    *,
    runs: int = 1,
    streamed: bool = False,
    **options: Any,
) -> list[Any]:
    """The messages of the last request, and the keys of the last run."""
    with ModelServer(script) as model:
        client = openai.AsyncOpenAI(base_url=model.url, api_key="any")
        chat = OpenAIChatCompletionsModel("m", client)
        agent = durable(Agent(name="adds", model=chat, mcp_servers=[server]), **options)
        workflow = adds(agent, streamed=streamed)
        async with client:
            keys = await noted.added(workflow, runs=runs)
        return [model.requests[-1].body["messages"], keys]


@pytest.mark.parametrize("streamed", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_each_run_has_one_session(tmp_path: Path, streamed: bool) -> None:
    told, keys = await results(
        noted.PARALLEL, notes(tmp_path, noted.BY_SDK), runs=2, streamed=streamed
    )
    assert "/mcp.notes.list_tools#2" in keys
    assert {f"/call_{call}@0/add#0" for call in ("0_0", "0_1", "1_0")} <= keys
    noted.check_each_run_had_one(tmp_path, told)


@noted.EVERY
def test_each_process_that_calls_has_one_session(zygote: Zygote, every: int) -> None:
    noted.check_sessions(zygote, "adds", every=every, lists_each_turn=True)


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
    assert "An error occurred while running the tool" in str(told)
    assert noted.Noted(tmp_path).calls == [[1, 2], [3, 4]]


@pytest.mark.parametrize("by_sse", [False, True], ids=["http", "sse"])
async def test_a_server_that_has_forgotten_the_session_is_given_another(by_sse: bool) -> None:
    with OverHttp() as server:
        reached: MCPServer = MCPServerStreamableHttp({"url": server.url})
        if by_sse:
            reached = MCPServerSse({"url": server.sse_url})
        await results(noted.FRAGILE, reached, tools=noted.SOON)
    server.check_opened_anew()
