"""Agents of the Microsoft Agent Framework."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
from agent_framework import Agent, MCPStdioTool, tool
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient

import holdfast
from holdfast.adapters.agent_framework import durable
from tests.adapters.noted import COMMAND, SERVER, environment
from tests.adapters.readers import reader
from tests.adapters.world import World

# What the client imports when it is first used, for all processes that are forked from this one.
assert openai.AsyncOpenAI(api_key="any").responses and openai.AsyncOpenAI(api_key="any").chat


def client_of(world: World, *, responses: bool = False) -> Any:
    kind = OpenAIChatClient if responses else OpenAIChatCompletionClient
    return kind(model="m", api_key="any", base_url=world.model_url)


def searching(world: World) -> Any:
    @holdfast.step
    async def note(text: str) -> None:
        await asyncio.to_thread(world.effect, f"note {text}")

    @tool(approval_mode="never_require")
    async def search(q: str) -> str:
        """Searches."""
        await note(q)
        await asyncio.to_thread(world.effect, f"search {q}")
        return f"found {q}"

    return search


def agent_of(world: World, name: str = "researcher", **options: Any) -> Any:
    responses = options.pop("responses", False)
    tools = [searching(world), *options.pop("tools", ())]
    return Agent(client_of(world, responses=responses), name=name, tools=tools, **options)


def started(world: World) -> tuple[Any, list[Any]]:
    return durable(agent_of(world)), ["why"]


def started_by_responses(world: World) -> tuple[Any, list[Any]]:
    return durable(agent_of(world, responses=True)), ["why"]


def streams_of(agent: Any) -> Any:
    @holdfast.workflow
    async def streams(question: str) -> list[str]:
        stream = agent.run(question, stream=True)
        seen = [update.text async for update in stream if update.text]
        return [*seen, (await stream.get_final_response()).text]

    return streams


def streamed(world: World) -> tuple[Any, list[Any]]:
    return streams_of(durable(agent_of(world))), ["why"]


def streamed_by_responses(world: World) -> tuple[Any, list[Any]]:
    return streams_of(durable(agent_of(world, responses=True))), ["why"]


def careful(world: World) -> Any:
    @tool(approval_mode="always_require")
    async def delete(path: str) -> str:
        """Deletes."""
        world.effect(f"delete {path}")
        return f"deleted {path}"

    return durable(agent_of(world, "careful", tools=[delete]))


def approved(world: World) -> tuple[Any, list[Any]]:
    return careful(world), ["clean up"]


def delegated(world: World) -> tuple[Any, list[Any]]:
    """An agent whose tool is another agent, which has to ask somebody."""
    helper = careful(world).as_tool(description="Cleans up.")
    return durable(agent_of(world, "boss", tools=[helper])), ["lead"]


def approved_in_session(world: World) -> tuple[Any, list[Any]]:
    agent = careful(world)

    @holdfast.workflow
    async def cleans(question: str) -> list[str]:
        session = agent.create_session()
        stream = agent.run(question, stream=True, session=session)
        pieces = [update.text async for update in stream if update.text]
        return [*pieces, (await agent.run("and then", session=session)).text]

    return cleans, ["clean up"]


def notes(folder: str | Path, args: list[str] = SERVER) -> MCPStdioTool:
    return MCPStdioTool(
        "notes", COMMAND, args=args, env=environment(folder), approval_mode="never_require"
    )


def adds(world: World) -> tuple[Any, list[Any]]:
    """With tools of an MCP server."""
    return durable(Agent(client_of(world), name="adds", tools=[notes(world.folder)])), ["add"]


def heard(world: World) -> tuple[Any, list[Any]]:
    agent = durable(agent_of(world))
    return reader(world, lambda question: agent.run(question, stream=True))
