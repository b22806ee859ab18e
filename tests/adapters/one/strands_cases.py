"""Agents, graphs and swarms of AWS Strands."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from openai import AsyncOpenAI
from strands import Agent, ToolContext, tool
from strands.models.openai import OpenAIModel
from strands.multiagent import GraphBuilder, Swarm
from strands.session import FileSessionManager
from strands.tools.mcp import MCPClient

import holdfast
from holdfast.adapters.strands import durable
from tests.adapters.noted import COMMAND, SERVER, environment
from tests.adapters.readers import reader
from tests.adapters.world import World


def model(world: World, *, shared: bool = True) -> OpenAIModel:
    """With one client for all calls, or as Strands does it by itself: with one for each."""
    args: dict[str, Any] = {"base_url": world.model_url, "api_key": "any"}
    if not shared:
        return OpenAIModel(client_args=args, model_id="m")
    return OpenAIModel(client=AsyncOpenAI(**args), model_id="m")


def tools(world: World) -> list[Any]:
    @holdfast.step
    async def note(text: str) -> None:
        await asyncio.to_thread(world.effect, f"note {text}")

    @tool
    async def search(q: str) -> str:
        """Searches."""
        await note(q)
        await asyncio.to_thread(world.effect, f"search {q}")
        return f"found {q}"

    @tool
    def look(q: str) -> str:
        """Looks."""
        world.effect(f"look {q}")
        return f"saw {q}"

    return [search, look]


def agent(world: World, name: str = "agent", **options: Any) -> Agent:
    given = {"model": model(world), "tools": tools(world), "callback_handler": None}
    return Agent(name=name, **{**given, **options})


def plain(world: World) -> tuple[Any, list[Any]]:
    return durable(agent(world, model=model(world, shared=False))), ["why"]


def streamed(world: World) -> tuple[Any, list[Any]]:
    asked = durable(agent(world))

    @holdfast.workflow
    async def reads(question: str) -> Any:
        said, kinds, result = [], [], None
        async for event in asked.stream_async(question):
            said.append(event.get("data", ""))
            kinds.append(sorted(event)[0])
            result = event.get("result")
        assert result is not None
        return ["".join(said), len(kinds), result.metrics.accumulated_usage["totalTokens"]]

    return reads, ["why"]


# People


def _refund(world: World) -> Any:
    @tool(context=True)
    async def refund(order: str, tool_context: ToolContext) -> str:
        """Gives money back."""
        answer = tool_context.interrupt("sure", reason={"order": order})
        if answer != "yes":
            return f"kept {order}: {answer}"
        await asyncio.to_thread(world.effect, f"refund {order}")
        return f"refunded {order}"

    return refund


def approved(world: World) -> tuple[Any, list[Any]]:
    return durable(agent(world, tools=[_refund(world), *tools(world)])), ["why"]


def approved_stream(world: World) -> tuple[Any, list[Any]]:
    asked = durable(agent(world, tools=[_refund(world), *tools(world)]))

    @holdfast.workflow
    async def reads(question: str) -> Any:
        results = []
        async for event in asked.stream_async(question):
            results += [str(event["result"])] if "result" in event else []
        return [results, [message["content"] for message in asked.messages if message["role"]]]

    return reads, ["why"]


# Teams


def team(world: World) -> tuple[Any, list[Any]]:
    """A helper that is used as a tool, and has to ask before it does what it is told."""
    helper = agent(world, "helper", system_prompt="helper", tools=[_refund(world), *tools(world)])
    lead = agent(world, "lead", system_prompt="lead", tools=[helper, *tools(world)])
    return durable(lead), ["why"]


def graph(world: World) -> tuple[Any, list[Any]]:
    """Five nodes, one after the other: a kill would find the models of two being asked, and what
    is being asked when its process dies is asked again, under the same key."""
    builder = GraphBuilder()
    builder.set_max_node_executions(20)
    builder.set_graph_id("five")
    for n in range(1, 6):
        made = agent(world, f"n{n}", system_prompt=f"n{n}", tools=[_refund(world), *tools(world)])
        builder.add_node(made, f"n{n}")
    for n in range(1, 5):
        builder.add_edge(f"n{n}", f"n{n + 1}")
    return durable(builder.build()), ["why"]


def swarm(world: World) -> tuple[Any, list[Any]]:
    """Triage hands off to billing, which has to ask somebody."""
    triage = agent(world, "triage", system_prompt="triage")
    billing = agent(world, "billing", system_prompt="billing", tools=[_refund(world)])
    return durable(Swarm([triage, billing], id="desk")), ["why"]


# What is remembered


def remembers(world: World) -> tuple[Any, list[Any]]:
    """Tools that change the agent's state and the invocation's, run another agent, and stop."""
    helper = durable(agent(world, "helper", system_prompt="helper", tools=[]))

    @tool(context=True)
    async def learn(fact: str, tool_context: ToolContext) -> str:
        """Learns."""
        await asyncio.to_thread(world.effect, f"learn {fact}")
        tool_context.agent.state.set(fact, len(tool_context.agent.messages))
        tool_context.invocation_state["facts"].append(fact)
        return str(await helper.invoke_async(fact))

    @tool(context=True)
    def stop(tool_context: ToolContext) -> str:
        """Stops."""
        tool_context.agent.cancel(message="Enough.", after_current_tools=True)
        return "stopping"

    asked = durable(agent(world, tools=[learn, stop]))

    @holdfast.workflow
    async def asks(question: str) -> Any:
        facts: dict[str, Any] = {"facts": []}
        result = await asked.invoke_async(question, invocation_state=facts)
        heard = [block["text"] for message in helper.messages for block in message["content"]]
        return [str(result), facts["facts"], asked.state.get(), heard, _used(helper)]

    return asks, ["why"]


def _used(agent: Agent) -> Any:
    return agent.event_loop_metrics.accumulated_usage["totalTokens"]


def talk(world: World) -> tuple[Any, list[Any]]:
    """Two turns of a conversation in a session that is kept in files beside the run's store."""
    folder = Path(world.folder) / "sessions"
    kept = FileSessionManager("ada", storage_dir=str(folder))
    asked = durable(agent(world, session_manager=kept))

    @holdfast.workflow
    async def talks(*questions: str) -> Any:
        for question in questions:
            await asked.invoke_async(question)
        again = agent(world, session_manager=FileSessionManager("ada", storage_dir=str(folder)))
        files = len(list(folder.rglob("message_*")))
        return [len(asked.messages), len(again.messages), files]

    return talks, ["why", "and then"]


def notes(folder: str | Path, args: list[str] = SERVER) -> MCPClient:
    server = StdioServerParameters(command=COMMAND, args=args, env=environment(folder))
    connect: Any = lambda: stdio_client(server)  # noqa: E731
    return MCPClient(connect, startup_timeout=60)


def adds(world: World) -> tuple[Any, list[Any]]:
    """With tools of an MCP server."""
    return durable(agent(world, "adds", tools=[notes(world.folder)])), ["add"]


def heard(world: World) -> tuple[Any, list[Any]]:
    return reader(world, durable(agent(world)).stream_async)
