"""What durable() of CrewAI's crews and flows can be told, and what it refuses."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from crewai import Crew, Task
from crewai.flow.flow import Flow, listen, start
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool
from pydantic import BaseModel

import holdfast
from holdfast.adapters._shared import UntestedVersion
from holdfast.adapters.crewai import durable, tools
from holdfast.testing import Environment
from holdfast.testing.model_server import ModelServer, Reply
from tests.adapters.two.crewai_cases import agent_of, llm
from tests.adapters.world import World

# CrewAI reads fields of its own that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
SOON = holdfast.Retry(attempts=3, backoff=timedelta(milliseconds=1))
ONCE = holdfast.Retry(attempts=1)


def world_of(model: ModelServer) -> World:
    return World(model.url, "", "")


def crew_of(model: ModelServer, *used: Any, agent: Any = None, **options: Any) -> Crew:
    agent = agent or agent_of(world_of(model), *used)
    task = Task(description="Do it", expected_output="words", agent=agent, **options)
    return Crew(name="one", agents=[agent], tasks=[task])


async def result_of(started: Any, *args: Any) -> Any:
    async with holdfast.Holdfast(":memory:", workflows=[started]) as app:
        run = await app.start(started, *args)
        return await asyncio.wait_for(run.result(), 120)


def using(*calls: tuple[str, dict[str, Any]]) -> list[Reply]:
    return [Reply(tool_calls=list(calls)), Reply(text="done")]


# Runs of their own


class Verdict(BaseModel):
    good: bool


async def test_the_result_of_a_crews_run_is_what_its_last_task_is_to_give() -> None:
    with ModelServer(['{"good": true}']) as model:
        crew = durable(crew_of(model, output_pydantic=Verdict))
        assert await result_of(crew) == Verdict(good=True)


async def test_a_flow_can_be_an_instance_and_each_of_its_runs_has_its_own() -> None:
    class Counting(Flow):  # type: ignore[type-arg]
        _skip_auto_memory = True

        @start()
        def count(self) -> list[Any]:
            self.state["n"] = self.state.get("n", 0) + 1
            return [self.state["n"], self.state["from"]]

    flow = durable(Counting(initial_state={"from": "here"}), name="counting")
    async with holdfast.Holdfast(":memory:", workflows=[flow]) as app:
        runs: list[Any] = [await app.start(flow) for _ in range(2)]
        assert [await run.result() for run in runs] == [[1, "here"], [1, "here"]]


async def test_outside_of_runs_they_are_what_they_were() -> None:
    class Plain(Flow):  # type: ignore[type-arg]
        _skip_auto_memory = True

        @start()
        def begin(self) -> str:
            return "begun"

    with ModelServer(["yes"]) as model:
        output: Any = await asyncio.to_thread(durable(crew_of(model)).kickoff)
    assert output.raw == "yes"
    assert await asyncio.to_thread(durable(Plain)().kickoff) == "begun"


# Failures


async def test_calls_are_tried_again_before_crewai_hears_of_it() -> None:
    tried = []

    @tool
    def shaky() -> str:
        """Fails at first."""
        tried.append(holdfast.idempotency_key())
        if len(tried) == 1:
            raise ConnectionError("not now")
        return "steady"

    with ModelServer(using(("shaky", {}))) as model:
        model.fail(500, times=2)
        crew = durable(crew_of(model, shaky), retry=SOON, tools={"shaky": SOON})
        assert await result_of(crew) == "done"
        assert [asked.status for asked in model.requests] == [500, 500, 200, 200]
        keys = [asked.idempotency_key for asked in model.requests]
        assert keys[0] == keys[1] == keys[2] != keys[3] is not None
        assert "steady" in str(model.requests[-1].body["messages"])
    assert len(tried) == 2
    assert len(set(tried)) == 1


async def test_another_model_is_asked_when_the_first_has_failed_for_good() -> None:
    with ModelServer(["never"]) as first, ModelServer(["from the other"]) as second:
        first.fail(500, times=100)
        crew = durable(crew_of(first), retry=ONCE, models=[llm(world_of(second), "other")])
        assert await result_of(crew) == "from the other"
        assert len(first.requests) == 1


async def test_messages_that_are_too_long_are_shortened() -> None:
    def script(asked: Any) -> Reply:
        if "Do it" in str(asked.body["messages"]):
            code = "context_length_exceeded"
            return Reply(status=400, text="maximum context length exceeded", code=code)
        return Reply(text="short enough")

    def shorten(messages: list[Any]) -> list[Any]:
        return [{"role": "user", "content": "less"}]

    with ModelServer(script) as model:
        assert await result_of(durable(crew_of(model), on_overflow=shorten)) == "short enough"
        assert len(model.requests) == 2


async def test_a_tool_that_returns_what_cannot_be_kept_is_named_to_the_model() -> None:
    @tool
    def odd() -> Any:
        """Returns no data."""
        return threading.Lock()

    with ModelServer(using(("odd", {}))) as model:
        assert await result_of(durable(crew_of(model, odd))) == "done"
        assert "Let the tool 'odd' return plain data" in str(model.requests[-1].body["messages"])


# Tools


async def test_tools_that_are_called_at_once_run_at_once() -> None:
    both = threading.Barrier(2, timeout=120)

    @tool
    def meet(who: str) -> str:
        """Waits for the other."""
        both.wait()
        return who

    with ModelServer(using(("meet", {"who": "a"}), ("meet", {"who": "b"}))) as model:
        assert await result_of(durable(crew_of(model, meet))) == "done"


async def test_what_a_cached_tool_returned_is_found_again_on_replay() -> None:
    used = []

    @tool
    def look(where: str) -> str:
        """Looks."""
        used.append(where)
        return f"was {where}"

    calls = [("look", {"where": "here"})]
    script = [Reply(tool_calls=calls), Reply(tool_calls=calls), Reply(text="done")]
    with ModelServer(script) as model:
        crew = crew_of(model, look, human_input=True)
        crew = Crew(name="one", agents=crew.agents, tasks=crew.tasks, cache=True)
        durable(crew)
        async with Environment([crew]) as env:  # type: ignore[list-item]
            run = await env.app.start(crew)  # type: ignore[arg-type]
            await out_of_memory(env, run)
            await run.resolve("task1", holdfast.Decision(approved=True))
            assert await run.result() == "done"
        assert len(model.requests) == 3
    assert used == ["here"]


async def test_a_tool_of_limited_use_has_as_many_in_each_run() -> None:
    used = []

    @tool(max_usage_count=1)
    def once() -> str:
        """Can be used once."""
        used.append(1)
        return "used"

    with ModelServer([*using(("once", {}))[:1], *using(("once", {}))]) as model:
        crew = durable(crew_of(model, once))
        for _ in range(2):
            assert await result_of(crew) == "done"
            assert "usage limit" in str(model.requests[-1].body["messages"])
    assert len(used) == 2


class TextOnly(BaseLLM):
    """A model that cannot call tools, but can write that it wants to."""

    def supports_function_calling(self) -> bool:
        return False

    def call(self, messages: Any, *args: Any, **kwargs: Any) -> str:
        asked.append(messages)
        if "Observation: was here" in str(messages):
            return "Thought: I know.\nFinal Answer: it was here"
        return 'Thought: look.\nAction: look\nAction Input: {"where": "here"}\n'


asked: list[Any] = []


async def test_models_without_tool_calls_use_tools_by_words_as_steps() -> None:
    @tool
    def look(where: str) -> str:
        """Looks."""
        return f"was {where}"

    agent = agent_of(World("http://localhost", "", ""), look, llm=TextOnly(model="words"))
    with ModelServer([]) as model:
        crew = durable(crew_of(model, agent=agent))
    async with Environment([crew]) as env:  # type: ignore[list-item]
        run = await env.app.start(crew)
        assert await run.result() == "it was here"
        steps = [entry.key for entry in await run.history() if "#" in entry.key]
    assert steps[:3] == ["/one#0/task1.llm#0", "/one#0/task1.look#0", "/one#0/task1.llm#1"]
    assert len(asked) == 2


# People


async def out_of_memory(env: Environment, run: Any) -> None:
    async with asyncio.timeout(120):
        while await run.status() is not holdfast.Status.WAITING:
            await env.settle()


async def test_a_crew_that_waits_for_somebody_leaves_memory_and_comes_back() -> None:
    with ModelServer(["A draft."]) as model:
        crew = durable(crew_of(model, human_input=True))
        async with Environment([crew]) as env:  # type: ignore[list-item]
            run = await env.app.start(crew)
            await out_of_memory(env, run)
            (asked_for,) = await env.app.promises(run.id)
            assert b"A draft." in (asked_for.prompt or b"")
            await run.resolve("task1", holdfast.Decision(approved=True))
            assert await run.result() == "A draft."
        assert len(model.requests) == 1


async def test_a_run_that_is_cancelled_while_tools_wait_ends_so() -> None:
    @tool
    def wait(name: str) -> Any:
        """Waits for an answer."""
        return holdfast.promise(name).result()

    with ModelServer(using(("wait", {"name": "a"}), ("wait", {"name": "b"}))) as model:
        crew = durable(crew_of(model, wait))
        async with Environment([crew]) as env:  # type: ignore[list-item]
            run = await env.app.start(crew)
            await out_of_memory(env, run)
            await run.cancel()
            with pytest.raises(holdfast.RunCancelled):
                await run.result()
        assert len(model.requests) == 1


# What is refused


@pytest.mark.parametrize("name", [None, "crew"])
def test_a_crew_without_a_name_cannot_be_a_run(name: str | None) -> None:
    with ModelServer([]) as model:
        crew = crew_of(model)
        crew.name = name
        durable(crew)
        with pytest.raises(holdfast.BadArguments, match=r"durable\(agent, name=\.\.\.\)"):
            holdfast.Holdfast(":memory:", workflows=[crew])


@pytest.mark.parametrize("given", [None, "crew", 3])
def test_other_things_are_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="a Crew, a Flow, a class of flows or an Agent"):
        durable(given)


def test_models_that_are_none_are_refused() -> None:
    with ModelServer([]) as model, pytest.raises(TypeError, match="models=: such as LLM"):
        durable(crew_of(model), models=[3])


def test_a_missing_hook_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tools.HOOKS, "BaseTool.run", None)
    with ModelServer([]) as model, pytest.raises(holdfast.Unsupported, match=r"BaseTool\.run"):
        durable(crew_of(model))


def test_a_newer_version_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "99.0.0")
    with ModelServer([]) as model, pytest.warns(UntestedVersion, match=r"99\.0\.0"):
        durable(crew_of(model))


def test_it_explains_what_will_be_journaled(capsys: pytest.CaptureFixture[str]) -> None:
    @tool
    def look() -> str:
        """Looks."""
        return ""

    class Two(Flow):  # type: ignore[type-arg]
        @start()
        def first(self) -> None: ...

        @listen(first)
        def second(self) -> None: ...

    with ModelServer([]) as model:
        durable(crew_of(model, look, human_input=True), explain=True)
    durable(Two, explain=True)
    said = capsys.readouterr().out
    assert "<task>.<tool>:<id of the call>: look" in said
    assert "approvals, for: Do it" in said
    assert "methods: first, second" in said


async def test_a_flow_of_a_run_does_not_begin_at_a_checkpoint_and_says_so() -> None:
    class Counts(Flow):  # type: ignore[type-arg]
        _skip_auto_memory = True

        @start()
        def begin(self) -> int:
            return 1

    kind = durable(Counts)

    @holdfast.workflow
    async def count() -> Any:
        await kind().kickoff_async(from_checkpoint=True)  # type: ignore[arg-type]

    with pytest.raises(holdfast.RunFailed) as failed:
        await result_of(count)
    assert isinstance(failed.value.__cause__, holdfast.Unsupported)
