"""What durable() takes of Pydantic AI, what it refuses, and what it says."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.durable_exec import BaseDurabilityCapability
from pydantic_ai.models.test import TestModel

import holdfast
from holdfast.adapters import pydantic_ai as adapter
from holdfast.adapters._shared import UntestedVersion
from holdfast.adapters.pydantic_ai import durable


@pytest.mark.parametrize("thing", [None, "agent", object(), Agent])
def test_what_is_no_agent_is_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match="an agent of Pydantic AI"):
        durable(thing)


def test_an_agent_needs_a_name() -> None:
    with pytest.raises(holdfast.BadArguments, match=r"durable\(agent, name="):
        durable(Agent(TestModel()))
    assert durable(Agent(TestModel()), name="given").name == "given"


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(holdfast.BadArguments, match="openai:gpt-5"):
        durable(Agent(TestModel(), name="asks"), models=[3])  # type: ignore[list-item]


async def test_outside_of_runs_it_is_the_agent_it_was() -> None:
    agent = Agent(TestModel(custom_output_text="yes"), name="asks")
    made = durable(agent)
    assert isinstance(made, Agent) and type(made).__name__ == "Agent"
    assert (await made.run("go")).output == "yes"


def test_it_says_what_will_be_journaled(capsys: pytest.CaptureFixture[str]) -> None:
    agent = Agent(TestModel(), name="asks", tools=[look])
    durable(agent, explain=True)
    said = capsys.readouterr().out
    assert "asks.model" in said and "look" in said and len(said.splitlines()) == 4


def look() -> str:
    return "seen"


def test_a_version_without_a_hook_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(BaseDurabilityCapability, "_find_model_id")
    with pytest.raises(holdfast.Unsupported, match=r"_find_model_id.*use pydantic-ai-slim=="):
        durable(Agent(TestModel(), name="asks"))


def test_a_newer_version_with_all_hooks_is_used_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapter, "TESTED", "2.0.0")
    with pytest.warns(UntestedVersion, match=r"is newer than 2\.0\.0"):
        durable(Agent(TestModel(), name="asks"))


def test_sync_streams_inside_of_runs_are_refused_with_a_cure() -> None:
    agent = durable(Agent(TestModel(), name="asks"))

    @holdfast.workflow
    def streams() -> str:
        return agent.run_stream_sync("go").get_output()

    with holdfast.Holdfast(":memory:", workflows=[streams]).sync() as door:
        with pytest.raises(holdfast.RunFailed, match="use run_sync"):
            door.start(streams).result()
