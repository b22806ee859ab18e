"""Tools of MCP servers, used by agents of CrewAI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from crewai import Crew, Task
from crewai.mcp import MCPServerHTTP, MCPServerStdio
from crewai.mcp.transports.http import HTTPTransport

import holdfast
from holdfast.adapters.crewai import durable
from holdfast.testing import Environment
from holdfast.testing.model_server import ModelServer, Reply
from tests.adapters import noted
from tests.adapters.harness import Zygote
from tests.adapters.mcp_http import OverHttp
from tests.adapters.two.crewai_cases import agent_of, notes
from tests.adapters.two.scripts import under_its_own_names
from tests.adapters.two.test_crewai_options import out_of_memory
from tests.adapters.world import World

# CrewAI reads fields of its own that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
CASES = "crewai_cases"


async def results(
    script: list[Reply],
    server: MCPServerHTTP | MCPServerStdio | str,
    *,
    runs: int = 1,
    **options: Any,
) -> list[Any]:
    """The messages of the last request, and the keys of the last run."""
    with ModelServer(under_its_own_names(script)) as model:
        agent = agent_of(World(model.url, "", ""), mcps=[server])
        task = Task(name="sum", description="Add", expected_output="a word", agent=agent)
        crew = durable(Crew(name="adds", agents=[agent], tasks=[task]), **options)
        keys = await noted.added(crew, runs=runs)
        return [model.requests[-1].body["messages"], keys]


async def test_each_run_has_one_session(tmp_path: Path) -> None:
    told, keys = await results(noted.PARALLEL, notes(tmp_path, noted.BY_SDK), runs=2)
    assert "/adds#0/mcp.list_tools#0" in keys
    for call in ("0_0", "0_1", "1_0"):
        assert any(f":call_{call}#" in key for key in keys)
    noted.check_each_run_had_one(tmp_path, told)


@noted.EVERY
def test_each_process_that_calls_has_one_session(zygote: Zygote, every: int) -> None:
    noted.check_sessions(zygote, "adds", under_its_own_names(noted.ONE_BY_ONE), every=every)


async def test_a_server_that_is_gone_is_tried_again(tmp_path: Path) -> None:
    noted.refuse_once(tmp_path)
    await results(noted.FRAGILE, notes(tmp_path), tools=noted.SOON)
    noted.check_opened_anew(tmp_path)


async def test_a_server_that_stays_away_is_what_the_model_is_told(tmp_path: Path) -> None:
    told, _ = await results(noted.FRAGILE, notes(tmp_path), tools=noted.ONCE)
    assert "is lost" in str(told)
    assert noted.Noted(tmp_path).calls == [[1, 2], [3, 4]]


async def test_a_server_that_has_forgotten_the_session_is_given_another() -> None:
    with OverHttp() as server:
        await results(noted.FRAGILE, MCPServerHTTP(url=server.url), tools=noted.SOON)
    server.check_opened_anew()


@pytest.fixture
def without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """CrewAI takes addresses with https only, and the server of the tests has none."""
    original = HTTPTransport.__init__

    def init(self: HTTPTransport, url: str, **options: Any) -> None:
        original(self, url.replace("https:", "http:"), **options)

    monkeypatch.setattr(HTTPTransport, "__init__", init)


def address(server: OverHttp) -> str:
    return server.url.replace("http:", "https:")


@pytest.mark.usefixtures("without_tls")
async def test_a_server_that_is_an_address_has_one_session_with_each_run() -> None:
    with OverHttp() as server:
        told, keys = await results(noted.PARALLEL, address(server), runs=2)
    assert "/adds#0/mcp.list_tools#0" in keys
    assert all(f"'{n}'" in str(told) for n in (3, 7, 11))
    sessions = [session for session, _ in server.calls]
    assert len(sessions) == 6
    assert len(set(sessions)) == len(set(sessions[:3])) + len(set(sessions[3:])) == 2
    assert server.listed == 2


@pytest.mark.usefixtures("without_tls")
async def test_a_server_that_is_an_address_is_given_another_session_if_it_forgets_one() -> None:
    with OverHttp() as server:
        await results(noted.FRAGILE, address(server), tools=noted.SOON)
    server.check_opened_anew()


@pytest.mark.usefixtures("without_tls")
async def test_what_tools_an_address_has_is_not_asked_again_on_replay() -> None:
    script = under_its_own_names(noted.ONE_BY_ONE)
    with OverHttp() as server, ModelServer(script) as model:
        agent = agent_of(World(model.url, "", ""), mcps=[address(server)])
        task = Task(
            name="sum", description="Add", expected_output="a word", agent=agent, human_input=True
        )
        crew = durable(Crew(name="adds", agents=[agent], tasks=[task]))
        async with Environment([crew]) as env:  # type: ignore[list-item]
            run: Any = await env.app.start(crew)  # type: ignore[arg-type]
            await out_of_memory(env, run)
            await run.resolve("sum", holdfast.Decision(approved=True))
            assert await run.result() == "Added."
    assert [about for _, about in server.calls] == [[1, 2], [3, 4]]
    assert server.listed == 1
