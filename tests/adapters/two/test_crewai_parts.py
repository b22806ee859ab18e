"""What CrewAI does around its calls of models and tools: guardrails, files, dates, copies; and
agents without a crew."""

from __future__ import annotations

import asyncio
from typing import Any

import crewai.utilities.prompts
import pytest
from crewai import Task
from crewai.tools import tool
from pydantic import BaseModel

import holdfast
from holdfast.adapters.crewai import crews, durable
from holdfast.testing import Environment
from holdfast.testing.model_server import ModelServer, Reply
from tests.adapters.two.crewai_cases import agent_of
from tests.adapters.two.test_crewai_options import (
    crew_of,
    out_of_memory,
    result_of,
    using,
    world_of,
)

# CrewAI reads fields of its own that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


async def approved(crew: Any, *, before: Any = lambda: None) -> Any:
    """It leaves memory while its task waits for somebody, and is replayed. before: that."""
    async with Environment([crew]) as env:
        run: Any = await env.app.start(crew)
        await out_of_memory(env, run)
        before()
        await run.resolve("task1", holdfast.Decision(approved=True))
        return await run.result()


async def test_a_result_that_is_put_into_a_file_has_the_same_name_on_replay() -> None:
    @tool
    def copy_all(what: str) -> str:
        """Returns more than the model can read."""
        return f"{what}\n" * 60_000

    calls = [("copy_all", {"what": "many words, all of them alike"})] * 2
    read: dict[str, Any] = {"start_line": 7, "line_count": 1}

    def script(asked: Any) -> Reply:
        if asked.turn == 0:
            return Reply(tool_calls=calls)
        if asked.turn == 2:
            return Reply(text="done")
        told = asked.body["messages"][-1]["content"]
        path = told.partition("relative file path `")[2].partition("`")[0]
        return Reply(tool_calls=[("read_a_deferred_tool_result", {**read, "file_path": path})])

    with ModelServer(script) as model:
        crew = durable(crew_of(model, copy_all, human_input=True))
        assert await approved(crew) == "done"
        assert len(model.requests) == 3
        assert "all of them alike" in model.requests[-1].body["messages"][-1]["content"]


async def test_the_date_in_a_prompt_stays_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tomorrow:
        @staticmethod
        def now() -> Any:
            raise AssertionError("the date is on record")

    with ModelServer(["done"]) as model:
        agent = agent_of(world_of(model), inject_date=True, use_system_prompt=False)
        crew = durable(crew_of(model, agent=agent, human_input=True))
        later = lambda: monkeypatch.setattr(crewai.utilities.prompts, "datetime", Tomorrow)  # noqa: E731
        assert await approved(crew, before=later) == "done"
        assert len(model.requests) == 1
        assert "Current Date: 2" in str(model.requests[0].body["messages"])


async def test_what_a_guardrail_that_asks_a_model_uses_is_counted() -> None:
    def script(asked: Any) -> Reply:
        is_judged = "Guardrail" in str(asked.body["messages"])
        return Reply(text='{"valid": true, "feedback": null}' if is_judged else "nice words")

    with ModelServer(script) as model:
        crew = durable(crew_of(model, guardrail="Be nice"))

        @holdfast.workflow
        def ask() -> Any:
            output: Any = crew.kickoff()
            return [output.raw, output.token_usage.successful_requests]

        assert await result_of(ask) == ["nice words", 2]
        assert len(model.requests) == 2


async def test_an_answer_that_a_guardrail_refuses_is_asked_for_again() -> None:
    def script(asked: Any) -> Reply:
        return Reply(text="good" if "not like that" in str(asked.body["messages"]) else "bad")

    def judge(output):  # type: ignore[no-untyped-def]  # CrewAI looks at what is annotated
        return (output.raw == "good", output.raw if output.raw == "good" else "not like that")

    with ModelServer(script) as model:
        assert await result_of(durable(crew_of(model, guardrail=judge))) == "good"
        assert len(model.requests) == 2


async def test_a_tool_whose_result_is_the_answer_ends_the_task() -> None:
    @tool(result_as_answer=True)
    def answer() -> str:
        """Knows it."""
        return "42"

    with ModelServer(using(("answer", {}))) as model:
        assert await result_of(durable(crew_of(model, answer))) == "42"
        assert len(model.requests) == 1


@pytest.mark.parametrize("what", ["train", "test", "replay"])
async def test_what_people_do_with_crews_is_not_for_runs(what: str) -> None:
    with ModelServer([]) as model:
        crew = durable(crew_of(model))

        @holdfast.workflow
        def use() -> Any:
            getattr(crew, what)(1, "any")

        with pytest.raises(holdfast.RunFailed) as failed:
            await result_of(use)
    assert isinstance(failed.value.__cause__, holdfast.Unsupported)


@pytest.mark.parametrize("what", ["kickoff_for_each_async", "akickoff_for_each"])
async def test_one_stream_of_several_kickoffs_is_refused(what: str) -> None:
    with ModelServer([]) as model:
        crew = crew_of(model)
        crew.stream = True
        durable(crew)

        @holdfast.workflow
        async def stream() -> Any:
            await getattr(crew, what)([{}, {}])

        with pytest.raises(holdfast.RunFailed) as failed:
            await result_of(stream)
    assert isinstance(failed.value.__cause__, holdfast.Unsupported)


async def test_copies_outside_of_runs_are_crewais_own_and_durable() -> None:
    with ModelServer(["yes"]) as model:
        crew = crew_of(model)
        crew.tasks.append(Task(description="{q}", expected_output="words", agent=crew.agents[0]))
        durable(crew)
        copied = crew.copy()
        assert isinstance(copied, crews.DurableCrew)
        assert not isinstance(copied._task_output_handler, crews.NoStorage)
        questions = [{"q": "one"}, {"q": "two"}]
        outputs: Any = await asyncio.to_thread(crew.kickoff_for_each, questions)
        assert [one.raw for one in outputs] == ["yes", "yes"]
        assert "one" in str(model.requests[1].body)


# Agents without a crew


class Verdict(BaseModel):
    good: bool


async def test_an_agent_without_a_crew_gives_a_typed_answer_also_on_replay() -> None:
    with ModelServer(['{"good": true}']) as model:
        agent = durable(agent_of(world_of(model)))

        @holdfast.workflow
        async def judge() -> Any:
            output: Any = await agent.kickoff_async("Judge", response_format=Verdict)
            await holdfast.promise("go on")
            return [output.pydantic.good, output.token_usage.successful_requests]

        async with Environment([judge]) as env:
            run: Any = await env.app.start(judge)
            await out_of_memory(env, run)
            await run.resolve("go on", None)
            assert await run.result() == [True, 1]
        assert len(model.requests) == 1


async def test_an_agent_outside_of_runs_is_what_it_was() -> None:
    with ModelServer(["yes"]) as model:
        agent = durable(agent_of(world_of(model)), name="helpful", explain=True)
        output: Any = await asyncio.to_thread(agent.kickoff, "Is it so?")
        assert output.raw == "yes"


async def test_an_agent_in_a_run_is_not_kicked_off_from_a_checkpoint() -> None:
    with ModelServer([]) as model:
        agent = durable(agent_of(world_of(model)))

        @holdfast.workflow
        async def ask() -> Any:
            await agent.kickoff_async("Go on", from_checkpoint=True)  # type: ignore[arg-type]

        with pytest.raises(holdfast.RunFailed) as failed:
            await result_of(ask)
    assert isinstance(failed.value.__cause__, holdfast.Unsupported)
