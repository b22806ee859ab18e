"""Tools of MCP servers, used by an agent of Google ADK."""

from __future__ import annotations

import asyncio
from pathlib import Path

from google.adk.agents import LlmAgent

import holdfast
from holdfast.adapters.google_adk import durable
from holdfast.testing.model_server import ModelServer
from tests.adapters.harness import Zygote
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


async def test_each_run_has_one_session(tmp_path: Path) -> None:
    with ModelServer(PARALLEL) as model:
        async with clients() as connect:
            server = notes(tmp_path, BY_SDK)
            agent = durable(LlmAgent(name="adds", model=connect(model), tools=[server]))
            async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
                for runs in (1, 2):
                    run = await app.start(agent, "add")
                    assert await asyncio.wait_for(run.result(), 60) == "Added."
                    keys = [entry.key for entry in await app.history(run.id)]
                    assert "/mcp.list_tools#0" in keys
                    assert {f"/add:call_{call}#0" for call in ("0_0", "0_1", "1_0")} <= set(keys)
                    assert Noted(tmp_path).calls_by_session == [3] * runs
                    assert Noted(tmp_path).sessions == runs
        told = str(model.requests[2].body["contents"])
        assert all(f"'{total}'" in told for total in (3, 7, 11))


@EVERY
def test_each_process_that_calls_has_one_session(zygote: Zygote, every: int) -> None:
    check_sessions(zygote, "adds", every=every)


async def test_a_server_that_is_gone_is_tried_again(tmp_path: Path) -> None:
    refuse_once(tmp_path)
    with ModelServer(FRAGILE) as model:
        async with clients() as connect:
            agent = LlmAgent(name="adds", model=connect(model), tools=[notes(tmp_path)])
            durable(agent, tools=SOON)
            async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
                run = await app.start(agent, "add")
                assert await asyncio.wait_for(run.result(), 120) == "Added."
    check_opened_anew(tmp_path)


async def test_a_server_that_stays_away_is_what_the_model_is_told(tmp_path: Path) -> None:
    with ModelServer(FRAGILE) as model:
        async with clients() as connect:
            agent = LlmAgent(name="adds", model=connect(model), tools=[notes(tmp_path)])
            durable(agent, tools=ONCE)
            async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
                run = await app.start(agent, "add")
                assert await asyncio.wait_for(run.result(), 120) == "Added."
        assert "Unexpected error during MCP tool" in str(model.requests[2].body["contents"])
