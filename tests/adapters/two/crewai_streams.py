"""Flows of CrewAI that stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from crewai import Crew, Task
from crewai.flow.flow import Flow, listen, start

import holdfast
from holdfast.adapters.crewai import durable
from tests.adapters.readers import reader
from tests.adapters.two.crewai_cases import agent_of, llm, search_of
from tests.adapters.world import World


def _flow(world: World) -> Any:
    model = llm(world)
    model.stream = True
    agent = agent_of(world, search_of(world), llm=model)
    task = Task(description="Answer: {question}", expected_output="an answer", agent=agent)
    crew = durable(Crew(name="crew", agents=[agent], tasks=[task]))

    @durable
    class Streams(Flow):  # type: ignore[type-arg]
        _skip_auto_memory = True
        stream = True

        @start()
        def consult(self) -> str:
            output: Any = crew.kickoff({"question": self.state["question"]})
            return str(output.raw)

        @listen(consult)
        async def note(self, answer: str) -> str:
            world.effect("note")
            self.state["noted"] = True
            return f"noted: {answer}"

    return Streams


def _told(frames: list[Any], session: Any, flow: Any) -> list[Any]:
    """What the models said, which methods ended, and what came of it."""
    ended = [one.type for one in frames].count("method_execution_finished")
    said = "".join(one.content for one in frames)
    return [said, ended, session.result, flow.state["noted"], [one.id for one in frames] != []]


def streamed(world: World) -> tuple[Any, list[Any]]:
    kind = _flow(world)

    @holdfast.workflow
    async def answer(question: str) -> Any:
        flow = kind()
        session = await flow.kickoff_async({"question": question})
        return _told([frame async for frame in session], session, flow)

    return answer, ["why"]


def streamed_in_def(world: World) -> tuple[Any, list[Any]]:
    kind = _flow(world)

    @holdfast.workflow
    def answer(question: str) -> Any:
        flow = kind()
        session = flow.kickoff({"question": question})
        return _told(list(session), session, flow)

    return answer, ["why"]


def own_run(world: World) -> tuple[Any, list[Any]]:
    return _flow(world), [{"question": "why"}]


def heard(world: World) -> tuple[Any, list[Any]]:
    kind = _flow(world)

    async def frames(question: str) -> AsyncIterator[Any]:
        session = kind().astream({"question": question})
        async for frame in session.llm:
            if frame.type == "llm_stream_chunk":
                yield frame

    return reader(world, frames)
