"""Crews and flows of CrewAI."""

from __future__ import annotations

import functools
from typing import Any

import httpx._transports.default
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from openai import OpenAI

import holdfast
from holdfast.adapters.crewai import durable
from tests.adapters.world import World

# What every process that is forked would do again, and takes longer than its run: to load the
# client's classes, and certificates that nobody needs.
_certificates = functools.cache(httpx._transports.default.create_ssl_context)
httpx._transports.default.create_ssl_context = _certificates
with OpenAI(api_key="any") as _client:
    assert _client.chat.completions


def llm(world: World, model: str = "m") -> LLM:
    return LLM(model=model, provider="openai", base_url=world.model_url, api_key="any")


def search_of(world: World) -> Any:
    @holdfast.step
    async def note(text: str) -> None:
        world.effect(f"note {text}")

    @tool
    async def search(q: str) -> str:
        """Searches."""
        await note(q)
        world.effect(f"search {q}")
        return f"found {q}"

    return search


def agent_of(world: World, *tools: Any, **options: Any) -> Agent:
    return Agent(
        **{"role": "helper", "goal": "help", "backstory": "none", "llm": llm(world)} | options,
        tools=list(tools),
    )


def _crew(world: World, **options: Any) -> Crew:
    agent = agent_of(world, search_of(world))
    task = Task(description="Answer: {question}", expected_output="an answer", agent=agent)
    return durable(Crew(name="crew-of-one", agents=[agent], tasks=[task], **options))


def own_run(world: World) -> tuple[Any, list[Any]]:
    return _crew(world), [{"question": "why"}]


def in_workflow(world: World) -> tuple[Any, list[Any]]:
    crew = _crew(world)

    @holdfast.workflow
    def answer(question: str) -> Any:
        output: Any = crew.kickoff({"question": question})
        again: Any = crew.usage_metrics
        return [output.raw, again.successful_requests]

    return answer, ["why"]


def streamed(world: World) -> tuple[Any, list[Any]]:
    crew = _crew(world, stream=True)

    @holdfast.workflow
    async def answer(question: str) -> Any:
        streaming: Any = await crew.akickoff({"question": question})
        read = [piece async for piece in streaming]
        return ["".join(piece.content for piece in read), streaming.result.raw]

    return answer, ["why"]
