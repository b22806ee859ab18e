"""Agents of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

import holdfast
from holdfast.adapters.openai_agents import durable
from tests.adapters.world import World

set_tracing_disabled(True)


def model(world: World, *, responses: bool = False) -> Any:
    client = AsyncOpenAI(base_url=world.model_url, api_key="any")
    kind = OpenAIResponsesModel if responses else OpenAIChatCompletionsModel
    return kind("m", client)


def tools(world: World) -> list[Any]:
    @holdfast.step
    async def note(text: str) -> None:
        await asyncio.to_thread(world.effect, f"note {text}")

    @function_tool
    async def search(q: str) -> str:
        await note(q)
        await asyncio.to_thread(world.effect, f"search {q}")
        return f"found {q}"

    @function_tool
    def look(q: str) -> str:
        world.effect(f"look {q}")
        return f"saw {q}"

    return [search, look]


def plain(world: World) -> tuple[Any, list[Any]]:
    return durable(Agent(name="agent", model=model(world), tools=tools(world))), ["why"]


def responses(world: World) -> tuple[Any, list[Any]]:
    made = Agent(name="agent", model=model(world, responses=True), tools=tools(world))
    return durable(made), ["why"]


def _streamed(world: World, **options: Any) -> tuple[Any, list[Any]]:
    agent = durable(Agent(name="agent", model=model(world, **options), tools=tools(world)))

    @holdfast.workflow
    async def reads(question: str) -> Any:
        said: list[str] = []
        result = Runner.run_streamed(agent, question)
        async for event in result.stream_events():
            said.append(getattr(getattr(event, "data", None), "type", event.type))
        return [result.final_output, result.context_wrapper.usage.requests, said]

    return reads, ["why"]


def streamed(world: World) -> tuple[Any, list[Any]]:
    return _streamed(world)


def streamed_responses(world: World) -> tuple[Any, list[Any]]:
    return _streamed(world, responses=True)
