"""Limits of tools of the Microsoft Agent Framework, and tools of its context providers, in runs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    BackgroundAgentsProvider,
    InlineSkill,
    SkillFrontmatter,
    SkillsProvider,
    TodoProvider,
    tool,
)
from agent_framework.openai import OpenAIChatCompletionClient

import holdfast
from holdfast.adapters.agent_framework import durable
from holdfast.testing import crash_everywhere
from holdfast.testing.model_server import ModelServer, Reply
from tests.adapters.outcomes import asked

SOON = holdfast.Retry(attempts=3, backoff=timedelta(milliseconds=1))


def agent_of(model: ModelServer, *tools: Any, **options: Any) -> Any:
    client = OpenAIChatCompletionClient(model="m", api_key="any", base_url=model.url)
    return durable(Agent(client, name="support", tools=list(tools), **options), tools=SOON)


async def test_the_model_is_told_at_once_that_a_tool_is_used_up() -> None:
    """A call that is tried again is one call."""
    tries: list[str] = []

    @tool(approval_mode="never_require", max_invocations=1)
    async def search(q: str) -> str:
        """Searches."""
        tries.append(q)
        if len(tries) == 1:
            raise ConnectionError("away")
        return f"found {q}"

    turns = [Reply(tool_calls=[("search", {"q": q})]) for q in ("a", "b")]
    with ModelServer([*turns, "Done."]) as model:
        agent = agent_of(model, search)
        async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
            run = await app.start(agent, "hello")
            assert await asyncio.wait_for(run.result(), 120) == "Done."
            history = await app.history(run.id)
        said = model.requests[-1].body["messages"]
        told = [one["content"] for one in said if one["role"] == "tool"]
        await agent.client.client.close()
    assert tries == ["a", "a"]
    assert told[0] == "found a" and "Error" in told[1]
    assert [e.attempt for e in history if e.key.endswith("search:call_1_0#0")] == [1]


async def test_calls_of_the_process_before_count(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    turns = [Reply(tool_calls=[("search", {"q": "a"})]), Reply(tool_calls=[("refund", {})])]
    with ModelServer([*turns, "Done."]) as model:
        for process in (1, 2):

            @tool(approval_mode="never_require", max_invocations=5)
            async def search(q: str) -> str:
                """Searches."""
                return f"found {q}"

            @tool(approval_mode="always_require")
            async def refund() -> str:
                """Gives money back."""
                return "refunded"

            agent = agent_of(model, search, refund)
            async with holdfast.Holdfast(store, workflows=[agent]) as app:
                run = await app.with_options(id="run").start(agent, "hello")
                promise = await asked(app, run.id)
                if process == 2:
                    await run.resolve(promise.name, holdfast.Decision(approved=True))
                    assert await asyncio.wait_for(run.result(), 120) == "Done."
            await agent.client.client.close()
            assert search.invocation_count == 1
    assert len(model.requests) == 3


@pytest.mark.filterwarnings("ignore::agent_framework._feature_stage.ExperimentalWarning")
async def test_what_tools_of_a_provider_write_into_the_session_comes_back() -> None:
    """They know the session without being given it."""
    add = Reply(tool_calls=[("todos_add", {"todos": [{"title": "buy tea"}]})])
    with ModelServer([add, "Done.", "More."]) as model:
        agent = agent_of(model, context_providers=[TodoProvider()])

        @holdfast.workflow
        async def talks() -> list[str]:
            session = agent.create_session()
            answers = [await agent.run(text, session=session) for text in ("hello", "and")]
            return [answer.text for answer in answers]

        report = await crash_everywhere(talks, clock=holdfast.SystemClock())
        assert report.result == ["Done.", "More."]  # what is to be done is in the second question
        await agent.client.client.close()


async def test_tools_of_a_provider_may_need_an_approval() -> None:
    about = SkillFrontmatter(name="greet", description="greets")
    load = Reply(tool_calls=[("load_skill", {"skill_name": "greet"})])
    with ModelServer([load, "Done."]) as model:
        skills = SkillsProvider([InlineSkill(frontmatter=about, instructions="Say hi.")])
        agent = agent_of(model, context_providers=[skills])
        async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
            run = await app.start(agent, "hello")
            decision = holdfast.Decision(approved=True)
            await run.resolve("load_skill:call_0_0", decision, early=True)
            assert await asyncio.wait_for(run.result(), 120) == "Done."
        assert "Say hi." in str(model.requests[1].body["messages"])
        await agent.client.client.close()


@pytest.mark.filterwarnings("ignore::agent_framework._feature_stage.ExperimentalWarning")
def test_agents_in_the_background_are_refused() -> None:
    client = OpenAIChatCompletionClient(model="m", api_key="any")
    helper = Agent(client, name="helper")
    agent = Agent(client, name="boss", context_providers=[BackgroundAgentsProvider([helper])])
    with pytest.raises(holdfast.Unsupported, match="the agents as tools"):
        durable(agent)
