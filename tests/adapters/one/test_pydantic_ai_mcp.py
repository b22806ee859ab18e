"""Tools of MCP servers, used by an agent of Pydantic AI."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import holdfast
from holdfast.adapters.pydantic_ai import durable
from holdfast.testing.model_server import ModelServer, Script
from tests.adapters import noted
from tests.adapters.harness import Zygote
from tests.adapters.mcp_http import OverHttp
from tests.adapters.one.pydantic_ai_cases import notes

CASES = "pydantic_ai_cases"


async def results(
    script: Script,
    server: MCPToolset[Any],
    *,
    runs: int = 1,
    together: bool = False,
    **options: Any,
) -> list[str]:
    """The last parts of the keys of the last run."""
    with ModelServer(script) as model:
        provider = OpenAIProvider(base_url=model.url, api_key="any")
        chat = OpenAIChatModel("m", provider=provider)
        agent = durable(Agent(chat, name="adds", toolsets=[server]), **options)
        async with provider.client, holdfast.Holdfast(":memory:", workflows=[agent]) as app:
            started = []
            for _ in range(runs):
                started.append(await app.start(agent, "add"))
                if not together:
                    await asyncio.wait_for(started[-1].result(), 120)
            for run in started:
                assert await asyncio.wait_for(run.result(), 120) == "Added."
            keys = [entry.key.rpartition("/")[2] for entry in await app.history(run.id)]
        return keys


async def test_each_run_has_one_session(tmp_path: Path) -> None:
    keys = await results(noted.PARALLEL, notes(tmp_path, noted.BY_SDK), runs=2)
    assert keys.count("adds__mcp_server__notes.get_tools#0") == 1
    assert {f"adds.add:call_{call}#0" for call in ("0_0", "0_1", "1_0")} <= set(keys)
    assert noted.Noted(tmp_path).calls_by_session == [3, 3]
    assert noted.Noted(tmp_path).sessions == 2


async def test_so_have_runs_at_the_same_time(tmp_path: Path) -> None:
    await results(noted.PARALLEL, notes(tmp_path), runs=2, together=True)
    assert noted.Noted(tmp_path).calls_by_session == [3, 3]


@noted.EVERY
def test_each_process_that_calls_has_one_session(zygote: Zygote, every: int) -> None:
    noted.check_sessions(zygote, "adds", every=every)


async def test_a_server_that_is_connected_is_used_as_it_is(tmp_path: Path) -> None:
    async with notes(tmp_path) as server:
        await results(noted.PARALLEL, server, runs=2)
        await server.client.transport.close()
    assert noted.Noted(tmp_path).sessions == 1


async def test_a_server_that_is_gone_is_tried_again(tmp_path: Path) -> None:
    noted.refuse_once(tmp_path)
    await results(noted.FRAGILE, notes(tmp_path), tools=noted.SOON)
    noted.check_opened_anew(tmp_path)


async def test_a_server_that_does_not_answer_in_time_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "hangs").write_text("1")
    retry = holdfast.Retry(attempts=10, backoff=timedelta(0))
    await results(noted.PARALLEL, notes(tmp_path, init_timeout=3), tools=retry)
    assert noted.Noted(tmp_path).calls_by_session == [3]


async def test_a_server_that_stays_away_fails_the_run(tmp_path: Path) -> None:
    with pytest.raises(holdfast.RunFailed) as failed:
        await results(noted.FRAGILE, notes(tmp_path), tools=noted.ONCE)
    assert isinstance(failed.value.__cause__, ConnectionError)
    assert noted.Noted(tmp_path).calls == [[1, 2]]


async def test_a_server_that_has_forgotten_the_session_is_given_another() -> None:
    with OverHttp() as server:
        await results(noted.FRAGILE, MCPToolset(server.url, id="notes"), tools=noted.SOON)
    server.check_opened_anew()
