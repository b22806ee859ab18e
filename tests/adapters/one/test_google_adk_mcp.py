"""Tools of MCP servers, used by an agent of Google ADK."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools.mcp_tool import McpToolset, StreamableHTTPConnectionParams

import holdfast
from holdfast.adapters.google_adk import durable
from holdfast.testing.model_server import ModelServer, Script
from tests.adapters.harness import Zygote
from tests.adapters.mcp_http import OverHttp
from tests.adapters.noted import (
    BY_SDK,
    EVERY,
    FRAGILE,
    PARALLEL,
    Noted,
    check_opened_anew,
    check_sessions,
    refuse_once,
)
from tests.adapters.one.google_adk_parts import ONCE, SOON, clients, notes

CASES = "google_adk_cases"


async def results(
    script: Script, toolset: McpToolset, *, runs: int = 1, **options: Any
) -> list[Any]:
    """What the model was given last, and the keys of the last run."""
    with ModelServer(script) as model:
        async with clients() as connect:
            agent = LlmAgent(name="adds", model=connect(model), tools=[toolset])
            durable(agent, **options)
            async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
                for _ in range(runs):
                    run = await app.start(agent, "add")
                    assert await asyncio.wait_for(run.result(), 120) == "Added."
                keys = {entry.key for entry in await app.history(run.id)}
        return [model.requests[-1].body["contents"], keys]


async def test_each_run_has_one_session(tmp_path: Path) -> None:
    told, keys = await results(PARALLEL, notes(tmp_path, BY_SDK), runs=2)
    assert "/mcp.list_tools#0" in keys
    assert {f"/add:call_{call}#0" for call in ("0_0", "0_1", "1_0")} <= keys
    assert Noted(tmp_path).calls_by_session == [3, 3]
    assert Noted(tmp_path).sessions == 2
    assert all(f"'{total}'" in str(told) for total in (3, 7, 11))


@EVERY
def test_each_process_that_calls_has_one_session(zygote: Zygote, every: int) -> None:
    check_sessions(zygote, "adds", every=every)


async def test_a_server_that_is_gone_is_tried_again(tmp_path: Path) -> None:
    refuse_once(tmp_path)
    await results(FRAGILE, notes(tmp_path), tools=SOON)
    check_opened_anew(tmp_path)


async def test_a_server_that_stays_away_is_what_the_model_is_told(tmp_path: Path) -> None:
    told, _ = await results(FRAGILE, notes(tmp_path), tools=ONCE)
    assert "Unexpected error during MCP tool" in str(told)
    assert Noted(tmp_path).calls == [[1, 2], [3, 4]]


async def test_a_server_that_has_forgotten_the_session_is_given_another() -> None:
    with OverHttp() as server:
        await results(
            FRAGILE,
            McpToolset(connection_params=StreamableHTTPConnectionParams(url=server.url)),
            tools=SOON,
        )
    server.check_opened_anew()
