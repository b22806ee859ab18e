"""Tools of MCP servers, used by an agent of LangChain."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient

import holdfast
from holdfast.adapters.langgraph import durable
from holdfast.testing.model_server import ModelServer, Script
from tests.adapters import noted
from tests.adapters.harness import Zygote
from tests.adapters.mcp_http import OverHttp
from tests.adapters.two.langgraph_cases import adding, model, notes

CASES = "langgraph_cases"


async def results(
    script: Script, client: MultiServerMCPClient, *, runs: int = 1, **options: Any
) -> list[Any]:
    """The messages of the last request, and the keys of the last run."""
    with ModelServer(script) as server:
        workflow = adding(server.url, client, **options)
        keys = await noted.added(workflow, "add", runs=runs)
        return [server.requests[-1].body["messages"], keys]


def over_http(url: str) -> MultiServerMCPClient:
    return MultiServerMCPClient({"notes": {"transport": "streamable_http", "url": url}})


async def test_each_run_has_one_session(tmp_path: Path) -> None:
    told, keys = await results(noted.PARALLEL, notes(tmp_path, noted.BY_SDK), runs=2)
    assert "/mcp.notes.list_tools#0" in keys
    for call in ("0_0", "0_1", "1_0"):
        assert any(key.endswith(f"/add:call_{call}#0") for key in keys)
    noted.check_each_run_had_one(tmp_path, told)


async def test_so_it_has_with_tools_that_the_program_has_listed(tmp_path: Path) -> None:
    client = notes(tmp_path)
    client.callbacks = Callbacks(on_progress=None)
    with ModelServer(noted.PARALLEL) as server:
        tools = await client.get_tools()
        agent = durable(create_agent(model(server.url), tools, name="adds"))
        asked = {"messages": [{"role": "user", "content": "add"}]}
        async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
            run: Any = await app.start(agent, asked)  # type: ignore[arg-type]
            state = await asyncio.wait_for(run.result(), 120)
    assert state["messages"][-1].content == "Added."
    assert noted.Noted(tmp_path).calls_by_session == [3]
    assert noted.Noted(tmp_path).sessions == 1 + 1


async def test_outside_of_runs_each_call_has_one_as_ever(tmp_path: Path) -> None:
    client = durable(notes(tmp_path))
    [add, _] = await client.get_tools()
    for n in (1, 2):
        await add.ainvoke({"a": n, "b": n})
    assert noted.Noted(tmp_path).calls_by_session == [1, 1]


@noted.EVERY
def test_each_process_that_calls_has_one_session(zygote: Zygote, every: int) -> None:
    noted.check_sessions(zygote, "adds", every=every)


async def test_a_server_that_is_gone_is_tried_again(tmp_path: Path) -> None:
    noted.refuse_once(tmp_path)
    await results(noted.FRAGILE, notes(tmp_path), tools=noted.SOON)
    noted.check_opened_anew(tmp_path)


async def test_a_server_that_stays_away_fails_the_run(tmp_path: Path) -> None:
    with pytest.raises(holdfast.RunFailed) as failed:
        await results(noted.FRAGILE, notes(tmp_path), tools=noted.ONCE, retry=noted.ONCE)
    assert isinstance(failed.value.__cause__, ConnectionError)
    assert noted.Noted(tmp_path).calls == [[1, 2]]


async def test_a_server_that_has_forgotten_the_session_is_given_another() -> None:
    with OverHttp() as server:
        await results(noted.FRAGILE, over_http(server.url), tools=noted.SOON)
    server.check_opened_anew()
