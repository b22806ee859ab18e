"""Limits of tools of the Microsoft Agent Framework, in runs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatCompletionClient

import holdfast
from holdfast.adapters.agent_framework import durable
from holdfast.testing.model_server import ModelServer, Reply
from tests.adapters.outcomes import asked

SOON = holdfast.Retry(attempts=3, backoff=timedelta(milliseconds=1))


def agent_of(model: ModelServer, *tools: Any) -> Any:
    client = OpenAIChatCompletionClient(model="m", api_key="any", base_url=model.url)
    return durable(Agent(client, name="support", tools=list(tools)), tools=SOON)


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
