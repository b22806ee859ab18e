"""Agents of LangChain with tools of MCP servers, in the environment where these can be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

import holdfast
from holdfast.adapters.langgraph import durable
from tests.adapters.noted import COMMAND, SERVER, environment
from tests.adapters.world import World


def model(url: str) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=url, api_key=SecretStr("any"))


def notes(folder: str | Path, args: list[str] = SERVER) -> MultiServerMCPClient:
    env = environment(folder)
    return MultiServerMCPClient(
        {"notes": {"transport": "stdio", "command": COMMAND, "args": args, "env": env}}
    )


def adding(url: str, client: MultiServerMCPClient, **options: Any) -> Any:
    """The tools are listed in the run."""
    client = durable(client, **options)

    @holdfast.workflow
    async def adding(question: str) -> str:
        agent: Any = durable(create_agent(model(url), await client.get_tools()), **options)
        state = await agent.ainvoke({"messages": [{"role": "user", "content": question}]})
        return str(state["messages"][-1].content)

    return adding


def adds(world: World) -> tuple[Any, list[Any]]:
    return adding(world.model_url, notes(world.folder)), ["add"]
