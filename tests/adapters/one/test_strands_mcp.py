"""Tools of MCP servers, used by agents of AWS Strands."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from strands import Agent
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient

import holdfast
from holdfast.adapters.strands import durable
from holdfast.testing.model_server import ModelServer, Script
from tests.adapters.harness import Zygote
from tests.adapters.mcp_http import OverHttp
from tests.adapters.noted import (
    BY_SDK,
    EVERY,
    FRAGILE,
    ONCE,
    PARALLEL,
    SOON,
    Noted,
    check_opened_anew,
    check_sessions,
)
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
        async with client, holdfast.Holdfast(":memory:", workflows=[agent]) as app:
            for _ in range(runs):
                run = await app.start(agent, "add")
                assert await asyncio.wait_for(run.result(), 120) == "Added."
            keys = {entry.key for entry in await app.history(run.id)}
        return [model.requests[-1].body["messages"], keys]


async def test_each_run_has_one_session(tmp_path: Path) -> None:
    told, keys = await results(PARALLEL, notes(tmp_path, BY_SDK), runs=2)
    assert {f"/add:call_{call}#0" for call in ("0_0", "0_1", "1_0")} <= keys
    assert Noted(tmp_path).calls_by_session == [3, 3]
    assert Noted(tmp_path).sessions == 1 + 2  # that of the program, which lists
    assert all(f"'{total}'" in str(told) for total in (3, 7, 11))


@EVERY
def test_each_process_that_calls_has_one_session(zygote: Zygote, every: int) -> None:
    check_sessions(zygote, "adds", every=every, opens_at_start=True)


async def test_a_server_that_is_gone_is_tried_again(tmp_path: Path) -> None:
    await results(FRAGILE, notes(tmp_path), tools=SOON)
    check_opened_anew(tmp_path, refused=0)


async def test_a_server_that_stays_away_is_what_the_model_is_told(tmp_path: Path) -> None:
    told, _ = await results(FRAGILE, notes(tmp_path), tools=ONCE)
    assert "is lost" in str(told)
    assert Noted(tmp_path).calls == [[1, 2], [3, 4]]


async def test_a_server_that_has_forgotten_the_session_is_given_another() -> None:
    with OverHttp() as server:
        await results(FRAGILE, MCPClient(url=server.url), tools=SOON)
    server.check_opened_anew()
