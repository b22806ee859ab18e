"""Tools of MCP servers, used by agents of AWS Strands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp.client.sse import sse_client
from openai import AsyncOpenAI
from strands import Agent
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient

from holdfast.adapters.strands import durable
from holdfast.testing.model_server import ModelServer, Script
from tests.adapters import noted
from tests.adapters.harness import Zygote
from tests.adapters.mcp_http import OverHttp
from tests.adapters.one.strands_cases import notes

CASES = "strands_cases"


async def results(script: Script, server: MCPClient, *, runs: int = 1, **options: Any) -> list[Any]:
    """The messages of the last request, and the keys of the last run."""
    with ModelServer(script) as model, server:
        tools: list[Any] = [server.list_tools_sync()]
        client = AsyncOpenAI(base_url=model.url, api_key="any")
        asks = OpenAIModel(client=client, model_id="m")
        agent = Agent(name="adds", model=asks, tools=tools, callback_handler=None)
        durable(agent, **options)
        async with client:
            keys = await noted.added(agent, "add", runs=runs)
        return [model.requests[-1].body["messages"], keys]


async def test_each_run_has_one_session(tmp_path: Path) -> None:
    told, keys = await results(noted.PARALLEL, notes(tmp_path, noted.BY_SDK), runs=2)
    assert {f"/add:call_{call}#0" for call in ("0_0", "0_1", "1_0")} <= keys
    noted.check_each_run_had_one(tmp_path, told, others=1)  # that of the program, which lists


@noted.EVERY
def test_each_process_that_calls_has_one_session(zygote: Zygote, every: int) -> None:
    noted.check_sessions(zygote, "adds", every=every, opens_at_start=True)


async def test_a_server_that_is_gone_is_tried_again(tmp_path: Path) -> None:
    await results(noted.FRAGILE, notes(tmp_path), tools=noted.SOON)
    noted.check_opened_anew(tmp_path, refused=0)


async def test_a_server_that_stays_away_is_what_the_model_is_told(tmp_path: Path) -> None:
    told, _ = await results(noted.FRAGILE, notes(tmp_path), tools=noted.ONCE)
    assert "is lost" in str(told)
    assert noted.Noted(tmp_path).calls == [[1, 2], [3, 4]]


@pytest.mark.parametrize("by_sse", [False, True], ids=["http", "sse"])
async def test_a_server_that_has_forgotten_the_session_is_given_another(by_sse: bool) -> None:
    with OverHttp() as server:
        client = (
            MCPClient(lambda: sse_client(server.sse_url)) if by_sse else MCPClient(url=server.url)
        )
        await results(noted.FRAGILE, client, tools=noted.SOON)
    server.check_opened_anew()
