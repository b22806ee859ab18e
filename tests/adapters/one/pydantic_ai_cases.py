"""Agents of Pydantic AI."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import holdfast
from holdfast.adapters.pydantic_ai import durable
from tests.adapters.world import World


def _agent(world: World, name: str = "researcher", **options: Any) -> Agent[None, str]:
    provider = OpenAIProvider(base_url=world.model_url, api_key="any")
    agent = Agent(OpenAIChatModel("m", provider=provider), name=name, **options)

    @holdfast.step
    async def note(text: str) -> None:
        await asyncio.to_thread(world.effect, f"note {text}")

    @agent.tool_plain
    async def search(q: str) -> str:
        await note(q)
        world.effect(f"search {q}")
        return f"found {q}"

    return agent


def started(world: World) -> tuple[Any, list[Any]]:
    return durable(_agent(world)), ["why"]
