"""The agents whose calls are measured, made plainly or durably: one for each framework.

Each is made of the parts that the adapters' tests have; see their `*_cases.py`. What a tool does in
the world is left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.adapters.world import World

Ask = Callable[[str], Awaitable[object]]
Agent = tuple[Ask, Callable[[], Awaitable[object]]]
"""How it is asked, and how its client is closed."""


class Nowhere(World):
    """Tools have no effects in it."""

    def effect(self, name: str) -> None:
        pass


def openai_agents(cases: Any, world: World, durable: Callable[[Any], Any]) -> Agent:
    model = cases.model(world)
    agent = durable(cases.Agent(name="agent", model=model, tools=cases.tools(world)))
    return lambda question: cases.Runner.run(agent, question), model._client.close


def pydantic_ai(cases: Any, world: World, durable: Callable[[Any], Any]) -> Agent:
    plain = cases._agent(world)
    agent = durable(plain)
    return lambda question: agent.run(question), plain.model.client.close


def langgraph(cases: Any, world: World, durable: Callable[[Any], Any]) -> Agent:
    model = cases.model_of(world)
    agent = durable(cases.create_agent(model, [cases.searching(world)], name="agent"))
    return lambda question: agent.ainvoke(cases.ask(question)), model.root_async_client.close


def strands(cases: Any, world: World, durable: Callable[[Any], Any]) -> Agent:
    model = cases.model(world)
    agent = durable(cases.agent(world, model=model))

    async def ask(question: str) -> None:
        await agent.invoke_async(question)
        agent.messages.clear()

    return ask, model._custom_client.close


def agent_framework(cases: Any, world: World, durable: Callable[[Any], Any]) -> Agent:
    plain = cases.agent_of(world)
    agent = durable(plain)
    return lambda question: agent.run(question), plain.client.client.close


def google_adk(cases: Any, world: World, durable: Callable[[Any], Any]) -> Agent:
    model = cases.model(world)
    agent = durable(cases.LlmAgent(name="agent", model=model, tools=cases.tools(world)))

    async def ask(question: str) -> None:
        runner = cases.Runner(
            app_name="app",
            agent=agent,
            session_service=cases.InMemorySessionService(),
            auto_create_session=True,
        )
        said = cases.types.UserContent(question)
        async for _ in runner.run_async(user_id="ada", session_id="s", new_message=said):
            pass

    return ask, model.api_client.aio.aclose


def crewai(cases: Any, world: World, durable: Callable[[Any], Any]) -> Agent:
    agent = cases.agent_of(world, cases.search_of(world))
    task = cases.Task(description="Answer: {question}", expected_output="text", agent=agent)
    crew = durable(cases.Crew(name="crew", agents=[agent], tasks=[task]))

    async def close() -> None:
        agent.llm._get_sync_client().close()

    return lambda question: crew.kickoff_async({"question": question}), close


ENVIRONMENTS: dict[str, list[Callable[[Any, World, Callable[[Any], Any]], Agent]]] = {
    "one": [openai_agents, pydantic_ai, langgraph, strands, agent_framework, google_adk],
    "two": [crewai],
}
