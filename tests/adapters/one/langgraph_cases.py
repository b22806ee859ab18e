"""Agents and graphs of LangChain and LangGraph."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

import holdfast
from holdfast.adapters.langgraph import durable
from tests.adapters.world import World


def model_of(world: World, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=world.model_url, api_key="any", **options)  # type: ignore[arg-type]


def searching(world: World) -> Any:
    @holdfast.step
    async def note(text: str) -> None:
        await asyncio.to_thread(world.effect, f"note {text}")

    @tool
    async def search(q: str) -> str:
        """Searches."""
        await note(q)
        await asyncio.to_thread(world.effect, f"search {q}")
        return f"found {q}"

    return search


def ask(question: str) -> Any:
    return {"messages": [{"role": "user", "content": question}]}


def agent(world: World) -> tuple[Any, list[Any]]:
    made = durable(create_agent(model_of(world), [searching(world)], name="agent"))

    @holdfast.workflow
    async def asks(question: str) -> list[Any]:
        state = await made.ainvoke(ask(question))
        return [[message.type, message.text] for message in state["messages"]]

    return asks, ["why"]


def streamed(world: World) -> tuple[Any, list[Any]]:
    made: Any = durable(create_agent(model_of(world), [searching(world)], name="agent"))

    @holdfast.workflow
    async def asks(question: str) -> list[Any]:
        tokens: list[str] = []
        found: list[str] = []  # parallel tools come in any order
        updates: list[str] = []
        modes: Any = ["messages", "updates"]
        async for mode, event in made.astream(ask(question), stream_mode=modes):
            if mode == "updates":
                updates += event
            elif event[0].type == "tool":
                found.append(event[0].text)
            else:
                tokens.append(event[0].text)
        return [tokens, sorted(found), updates]

    return asks, ["why"]
