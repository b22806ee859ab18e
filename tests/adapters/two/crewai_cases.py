"""Crews and flows of CrewAI."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx._transports.default
from crewai import LLM, Agent, Crew, Process, Task
from crewai.flow.flow import Flow, and_, listen, or_, router, start
from crewai.flow.human_feedback import human_feedback
from crewai.flow.persistence import SQLiteFlowPersistence, persist
from crewai.mcp import MCPServerStdio
from crewai.tools import tool
from openai import OpenAI
from pydantic import BaseModel

import holdfast
from holdfast.adapters.crewai import durable
from tests.adapters.noted import COMMAND, SERVER, environment
from tests.adapters.readers import reader
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


def warm(world: World) -> tuple[Any, list[Any]]:
    """The second process has made another run, in which everything was found out that crews and
    clients find out once."""
    crew, been_here = _crew(world), Path(world.folder, "been here")
    if been_here.exists():

        async def another() -> None:
            async with holdfast.Holdfast(":memory:", workflows=[crew]) as app:
                run = await app.start(crew, {"question": "before"})  # type: ignore[arg-type]
                await run.result()

        thread = threading.Thread(target=lambda: asyncio.run(another()))
        thread.start()
        thread.join()
    been_here.touch()
    return crew, [{"question": "why"}]


def streamed(world: World) -> tuple[Any, list[Any]]:
    crew = _crew(world, stream=True)

    @holdfast.workflow
    async def answer(question: str) -> Any:
        streaming: Any = await crew.akickoff({"question": question})
        read = [piece async for piece in streaming]
        return ["".join(piece.content for piece in read), streaming.result.raw]

    return answer, ["why"]


class Report(BaseModel):
    topic: str = ""
    found: list[str] = []
    notes: dict[str, int] = {}


def flow(world: World) -> tuple[Any, list[Any]]:
    crew = _crew(world)

    @durable
    class Research(Flow[Report]):
        _skip_auto_memory = True  # its store takes longer to load than the run

        @start()
        def begin(self) -> str:
            world.effect("begin")
            self.state.notes["begin"] = 1
            return self.state.topic

        @listen(begin)
        def consult(self, topic: str) -> Any:
            output: Any = crew.kickoff({"question": topic})
            self.state.found.append(output.raw)
            return output

        @listen(begin)
        async def look(self, topic: str) -> str:
            world.effect(f"look {topic}")
            return f"looked at {topic}"

        @router(and_(consult, look))
        def judge(self) -> str:
            world.effect("judge")
            return "good" if len(self.state.found) == 1 else "bad"

        @listen("good")
        def publish(self) -> list[Any]:
            world.effect("publish")
            return [self.state.found, self.state.notes, str(self.state.id)[:2] != ""]

        @listen("bad")
        def burn(self) -> str:
            return "burnt"

    return Research, [{"topic": "why"}]


class Answer(BaseModel):
    text: str
    score: int


def team(world: World) -> tuple[Any, list[Any]]:
    """A manager asks a helper, who uses a tool; a reviewer may be asked again by a person."""
    helper = agent_of(world, search_of(world), role="Searcher")
    writer = agent_of(world, role="Writer")
    first = Task(name="search", description="Find {question}", expected_output="what is known")
    last = Task(
        name="write",
        description="Write about {question}",
        expected_output="a text",
        output_pydantic=Answer,
        agent=writer,
    )
    made = Crew(
        name="team",
        agents=[helper, writer],
        tasks=[first, last],
        process=Process.hierarchical,
        manager_llm=llm(world, "manager"),
    )
    crew = durable(made)

    @holdfast.workflow
    async def work(question: str) -> Any:
        output: Any = await crew.akickoff({"question": question})
        again: Any = last.output
        return [output.pydantic.score, again.pydantic.text, output.token_usage.successful_requests]

    return work, ["why"]


def side_by_side(world: World) -> tuple[Any, list[Any]]:
    """Two tasks at once, and one that reads what came of them."""
    one, two, three = (agent_of(world, search_of(world), role=f"r{n}") for n in range(3))
    aside: dict[str, Any] = {"expected_output": "words", "async_execution": True}
    left = Task(name="left", description="Look left", agent=one, **aside)
    right = Task(name="right", description="Look right", agent=two, **aside)
    both = Task(
        name="both", description="Sum up", expected_output="all", agent=three, context=[left, right]
    )
    crew = durable(Crew(name="pair", agents=[one, two, three], tasks=[left, right, both]))

    @holdfast.workflow
    async def look() -> Any:
        output: Any = await crew.kickoff_async()
        return [one.raw for one in output.tasks_output]

    return look, []


def reviewed(world: World) -> tuple[Any, list[Any]]:
    agent = agent_of(world, search_of(world))
    task = Task(
        name="draft", description="Draft", expected_output="a text", agent=agent, human_input=True
    )
    return durable(Crew(name="reviewed", agents=[agent], tasks=[task])), []


def each(world: World) -> tuple[Any, list[Any]]:
    crew = _crew(world)

    @holdfast.workflow
    async def answer() -> Any:
        questions = [{"question": "one"}, {"question": "two"}]
        outputs: Any = await crew.kickoff_for_each_async(questions)
        return [[one.raw for one in outputs], crew.usage_metrics.successful_requests]  # type: ignore

    return answer, []


def one_by_one(world: World) -> tuple[Any, list[Any]]:
    crew = _crew(world)

    @holdfast.workflow
    def answer() -> Any:
        outputs: Any = crew.kickoff_for_each([{"question": "one"}, {"question": "two"}])
        return [[one.raw for one in outputs], crew.usage_metrics.successful_requests]  # type: ignore

    return answer, []


def planned(world: World) -> tuple[Any, list[Any]]:
    """A planner writes a plan for each task before the crew begins."""
    return _crew(world, planning=True, planning_llm=llm(world, "planner")), [{"question": "why"}]


def single(world: World) -> tuple[Any, list[Any]]:
    """An agent without a crew."""
    return durable(agent_of(world, search_of(world), role="Senior\n  searcher\n")), ["why"]


def consulting(world: World) -> tuple[Any, list[Any]]:
    """Methods of a flow that ask agents: two at once, and one that is durable itself."""
    known = durable(agent_of(world, search_of(world)))

    @durable
    class Consults(Flow):  # type: ignore[type-arg]
        _skip_auto_memory = True

        @start()
        async def both(self) -> list[str]:
            one, other = (agent_of(world, search_of(world)) for _ in range(2))
            asked: Any = (one.kickoff_async("a"), asyncio.to_thread(other.kickoff, "b"))
            return [output.raw for output in await asyncio.gather(*asked)]

        @listen(both)
        def third(self, said: list[str]) -> Any:
            output: Any = agent_of(world, search_of(world)).kickoff("c")
            return [*said, output.raw]

        @listen(third)
        async def last(self, said: list[str]) -> Any:
            return [*said, (await known.kickoff_async("d")).raw]

    @holdfast.workflow
    async def consult() -> Any:
        flow: Any = Consults()
        return [await flow.kickoff_async(), flow.usage_metrics.successful_requests]

    return consult, []


def asking(world: World) -> tuple[Any, list[Any]]:
    """A flow that asks people, and goes round until they are content."""

    @durable
    @persist(SQLiteFlowPersistence(f"{world.folder}/states.db"))
    class Letter(Flow):  # type: ignore[type-arg]
        _skip_auto_memory = True

        @start("again")
        def write(self) -> str:
            self.state["round"] = self.state.get("round", 0) + 1
            to = self.ask("To whom?") if self.state["round"] == 1 else self.state["to"]
            self.state["to"] = to
            world.effect(f"write {self.state['round']}")
            return f"Dear {to} {self.state['round']}"

        @human_feedback(message="Good?", emit=["fine", "again"], llm=llm(world))
        @listen(write)
        def review(self, text: str) -> str:
            world.effect(f"review {self.state['round']}")
            return text

        @listen("fine")
        def send(self, given: Any) -> Any:
            world.effect("send")
            return [given.output, given.feedback, self.state["round"]]

    return Letter, []


def racing(world: World) -> tuple[Any, list[Any]]:
    @durable
    class Race(Flow):  # type: ignore[type-arg]
        _skip_auto_memory = True

        @start()
        async def fast(self) -> str:
            world.effect("fast")
            return "fast"

        @start()
        def slow(self) -> str:
            world.effect("slow")
            self.state["slow"] = llm(world).call("slow?")
            return "slow"

        @listen(or_(fast, slow))
        def either(self, first: str) -> str:
            world.effect("either")
            self.state["first"] = first
            return first

        @listen(and_(slow, either))
        def both(self) -> Any:
            return [self.state["slow"], sorted(self.state)]

    return Race, []


def notes(folder: str | Path, args: list[str] = SERVER) -> MCPServerStdio:
    return MCPServerStdio(command=COMMAND, args=args, env=environment(folder))


def adds(world: World) -> tuple[Any, list[Any]]:
    """With tools of an MCP server."""
    agent = agent_of(world, mcps=[notes(world.folder)])
    task = Task(name="sum", description="Add", expected_output="a word", agent=agent)
    return durable(Crew(name="adds", agents=[agent], tasks=[task])), []


def heard(world: World) -> tuple[Any, list[Any]]:
    crew = _crew(world, stream=True)

    async def pieces(question: str) -> AsyncIterator[Any]:
        streaming: Any = await crew.akickoff({"question": question})
        async for piece in streaming:
            yield piece

    return reader(world, pieces)
