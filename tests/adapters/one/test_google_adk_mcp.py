"""Tools of MCP servers, used by an agent of Google ADK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.mcp_tool import (
    McpToolset,
    SseConnectionParams,
    StreamableHTTPConnectionParams,
)

from holdfast.adapters.google_adk import durable
from holdfast.testing.model_server import ModelServer, Script
from tests.adapters import noted
from tests.adapters.harness import Zygote
from tests.adapters.mcp_http import OverHttp
from tests.adapters.one.google_adk_parts import clients, notes

CASES = "google_adk_cases"


async def results(
    script: Script, toolset: McpToolset, *, runs: int = 1, **options: Any
) -> list[Any]:
    """What the model was given last, and the keys of the last run."""
    with ModelServer(script) as model:
        async with clients() as connect:
            agent = LlmAgent(name="adds", model=connect(model), tools=[toolset])
            durable(agent, **options)
            keys = await noted.added(agent, "add", runs=runs)
        return [model.requests[-1].body["contents"], keys]


async def test_each_run_has_one_session(tmp_path: Path) -> None:
    told, keys = await results(noted.PARALLEL, notes(tmp_path, noted.BY_SDK), runs=2)
    assert "/mcp.list_tools#0" in keys
    assert {f"/add:call_{call}#0" for call in ("0_0", "0_1", "1_0")} <= keys
    noted.check_each_run_had_one(tmp_path, told)


@noted.EVERY
def test_each_process_that_calls_has_one_session(zygote: Zygote, every: int) -> None:
    noted.check_sessions(zygote, "adds", every=every)


async def test_a_server_that_is_gone_is_tried_again(tmp_path: Path) -> None:
    noted.refuse_once(tmp_path)
    await results(noted.FRAGILE, notes(tmp_path), tools=noted.SOON)
    noted.check_opened_anew(tmp_path)


async def test_a_server_that_stays_away_is_what_the_model_is_told(tmp_path: Path) -> None:
    told, _ = await results(noted.FRAGILE, notes(tmp_path), tools=noted.ONCE)
    assert "Unexpected error during MCP tool" in str(told)
    assert noted.Noted(tmp_path).calls == [[1, 2], [3, 4]]


@pytest.mark.parametrize("by_sse", [False, True], ids=["http", "sse"])
async def test_a_server_that_has_forgotten_the_session_is_given_another(by_sse: bool) -> None:
    with OverHttp() as server:
        params: Any = StreamableHTTPConnectionParams(url=server.url)
        if by_sse:
            params = SseConnectionParams(url=server.sse_url)
        await results(noted.FRAGILE, McpToolset(connection_params=params), tools=noted.SOON)
    server.check_opened_anew()
