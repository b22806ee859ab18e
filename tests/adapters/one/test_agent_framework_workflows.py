"""Workflows of the Microsoft Agent Framework: many at once, asked, failing, and refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Never

import pytest
from agent_framework import (
    Agent,
    AgentResponse,
    AgentResponseUpdate,
    BaseAgent,
    Executor,
    InMemoryCheckpointStorage,
    Message,
    ResponseStream,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
)
from agent_framework import workflow as functional
from agent_framework.openai import OpenAIChatCompletionClient
from agent_framework.orchestrations import SequentialBuilder

import holdfast
from holdfast.adapters.agent_framework import durable
from holdfast.testing import crash_everywhere
from holdfast.testing.model_server import ModelServer

ONCE = holdfast.Retry(attempts=1)
REAL = holdfast.SystemClock()
LEAVES_AT_ONCE = holdfast.WorkerOptions(memory_wait=timedelta(0))


class Counts(Executor):
    """Asks somebody for each number until it has enough."""

    def __init__(self, id: str = "counts") -> None:
        super().__init__(id)
        self.total = 0

    @handler
    async def begin(self, enough: int, ctx: WorkflowContext[Never, int]) -> None:
        await ctx.request_info(enough, int)

    @response_handler
    async def add(self, enough: int, number: int, ctx: WorkflowContext[Never, int]) -> None:
        self.total += number
        if self.total < enough:
            await ctx.request_info(enough, int)
        else:
            await ctx.yield_output(self.total)


def counting(id: str = "counts") -> Any:
    return WorkflowBuilder(name="counting", start_executor=Counts(id)).build()


async def test_a_workflow_that_left_memory_begins_from_what_was_built() -> None:
    workflow = vars(durable(counting()))["__holdfast_workflow__"]
    answers = {"counts:1": 1, "counts:2": 2, "counts:3": 3}
    report = await crash_everywhere(
        workflow, 6, answers=answers, clock=REAL, worker_options=LEAVES_AT_ONCE
    )
    assert report.result == [6]


async def test_runs_at_once_do_not_know_of_one_another() -> None:
    flow = durable(counting())
    async with holdfast.Holdfast(":memory:", workflows=[flow]) as app:
        runs = [await app.with_options(id=f"r{n}").start(flow, n) for n in (1, 2, 3)]
        for n, run in enumerate(runs, 1):
            await run.resolve("counts:1", n, early=True)
        assert [await asyncio.wait_for(run.result(), 120) for run in runs] == [[1], [2], [3]]


async def test_one_workflow_goes_on_from_call_to_call() -> None:
    """As without Holdfast: what its executors remember is not forgotten in between."""
    flow = durable(counting())

    @holdfast.workflow
    async def counts_twice() -> list[int]:
        first, second = await flow.run(1), await flow.run(5)
        return [*first.get_outputs(), *second.get_outputs()]

    answers = {"counts:1": 2, "counts:2": 3}
    report = await crash_everywhere(counts_twice, answers=answers, clock=REAL)
    assert report.result == [2, 5]


async def test_the_caller_is_asked_if_he_wants_to_be() -> None:
    flow = durable(counting(), approvals=False)

    @holdfast.workflow
    async def answers() -> list[Any]:
        (request,) = (await flow.run(4)).get_request_info_events()
        result = await flow.run(responses={request.request_id: 4})
        return [request.data, *result.get_outputs()]

    assert (await crash_everywhere(answers, clock=REAL)).result == [4, 4]


async def test_a_failure_is_told_as_the_framework_tells_it() -> None:
    @executor(id="fails")
    async def fails(text: str, ctx: WorkflowContext) -> None:
        raise ValueError("never")

    built = WorkflowBuilder(name="failing", start_executor=fails).build()
    flow = durable(built, retry=ONCE)

    @holdfast.workflow
    async def watches() -> list[str]:
        seen: list[str] = []
        try:
            async for event in flow.run("x", stream=True):
                seen.append(event.type)
        except ValueError as error:
            seen.append(str(error))
        return seen

    report = await crash_everywhere(watches, clock=REAL)
    assert report.result == [
        "started", "status", "superstep_started", "executor_invoked", "executor_failed",
        "failed", "status", "never",
    ]  # fmt: skip


# What is refused


async def test_an_executor_with_another_id_when_it_is_built_again_is_named(tmp_path: Path) -> None:
    store, reached = f"sqlite:///{tmp_path}/runs.db", asyncio.Event()

    def asking(flow: Any) -> Any:
        @holdfast.workflow
        async def asks() -> None:
            await flow.run(3)
            reached.set()
            await holdfast.promise("never")

        return asks

    before, after = (asking(durable(counting(id), approvals=False)) for id in ("first", "second"))
    async with holdfast.Holdfast(store, workflows=[before]) as app:
        await app.with_options(id="r").start(before)
        await asyncio.wait_for(reached.wait(), 120)
    async with holdfast.Holdfast(store, workflows=[after]) as app:
        with pytest.raises(holdfast.HoldfastError) as refused:
            await asyncio.wait_for(app.get("r").result(), 120)
    told = str(refused.value.__cause__ or refused.value)
    assert "first" in told and "same ids" in told


def client() -> Any:
    return OpenAIChatCompletionClient(model="m", api_key="any", base_url="http://localhost:1")


def test_ids_and_names_that_do_not_stay_are_refused() -> None:
    with pytest.raises(holdfast.BadArguments, match="give its agent a name"):
        durable(WorkflowBuilder(name="w", start_executor=Agent(client())).build())
    unnamed = WorkflowBuilder(start_executor=Counts()).build()
    with pytest.raises(holdfast.BadArguments, match="name="):
        durable(unnamed)
    assert vars(durable(unnamed, name="w"))["__holdfast_workflow__"].name == "w"


async def test_checkpoints_are_left_to_the_journal() -> None:
    flow = durable(counting())

    @holdfast.workflow
    async def runs() -> None:
        await flow.run(1, checkpoint_storage=InMemoryCheckpointStorage())

    async with holdfast.Holdfast(":memory:", workflows=[runs]) as app:
        with pytest.raises(holdfast.RunFailed) as failed:
            await asyncio.wait_for((await app.start(runs)).result(), 120)
    assert isinstance(failed.value.__cause__, holdfast.Unsupported)


@dataclass
class Lost:
    """Nothing leads to it."""


async def test_a_message_that_cannot_be_kept_is_an_error_that_names_the_cure() -> None:
    @executor(id="sends")
    async def sends(text: str, ctx: WorkflowContext[Any]) -> None:
        await ctx.send_message(Lost())

    flow = durable(WorkflowBuilder(name="sending", start_executor=sends).build())
    async with holdfast.Holdfast(":memory:", workflows=[flow]) as app:
        with pytest.raises(holdfast.HoldfastError) as failed:
            await asyncio.wait_for((await app.start(flow, "x")).result(), 120)
    assert "register" in str(failed.value.__cause__ or failed.value)


def test_it_says_what_will_be_journaled(capsys: pytest.CaptureFixture[str]) -> None:
    durable(counting(), explain=True)
    printed = capsys.readouterr().out
    assert "each message to: counts" in printed and "<executor>:<number>" in printed


# Other kinds of agents and workflows


class Says(BaseAgent):
    """An agent of a class of one's own."""

    def run(self, messages: Any = None, *, stream: bool = False, **named: Any) -> Any:
        async def answer() -> AgentResponse[Any]:
            return AgentResponse(messages=[Message("assistant", ["mine"])])

        async def updates() -> AsyncIterator[AgentResponseUpdate]:
            for message in (await answer()).messages:
                yield AgentResponseUpdate(contents=message.contents, role="assistant")

        if not stream:
            return answer()
        return ResponseStream(updates(), finalizer=AgentResponse.from_updates)


def talking(model: ModelServer) -> tuple[Any, Any]:
    client = OpenAIChatCompletionClient(model="m", api_key="any", base_url=model.url)
    participants: list[Any] = [Agent(client, name="one"), Says(name="mine")]
    flow = SequentialBuilder(participants=participants).build()
    return client, durable(flow, name="talking")


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_durable_workflow_is_an_agent_whose_agents_may_be_of_any_class(
    streamed: bool,
) -> None:
    with ModelServer(["yes"]) as model:
        client, flow = talking(model)
        agent = flow.as_agent("talks")

        @holdfast.workflow
        async def asks() -> list[str]:
            if not streamed:
                return [(await agent.run("hello")).text]
            return [update.text async for update in agent.run("hello", stream=True)]

        report = await crash_everywhere(asks, clock=REAL)
        await client.client.close()
    assert "".join(report.result) == "mine"
    assert report.steps["/mine#0"] == 1 and report.steps["/one#0/one.model#0"] == 1


async def test_a_workflow_as_an_agent_asks_people_as_the_workflow_does() -> None:
    class Begins(Executor):
        @handler
        async def begin(self, said: list[Message], ctx: WorkflowContext[int]) -> None:
            await ctx.send_message(3)

    begins, counts = Begins(id="begins"), Counts()
    built = WorkflowBuilder(name="asked", start_executor=begins).add_edge(begins, counts).build()
    agent = durable(built).as_agent("asks")

    @holdfast.workflow
    async def asks() -> str:
        return (await agent.run("hello")).text

    report = await crash_everywhere(asks, answers={"counts:1": 1, "counts:2": 2}, clock=REAL)
    assert report.result == "3"


@pytest.mark.filterwarnings("ignore:.FUNCTIONAL_WORKFLOWS.")
def test_what_is_of_another_kind_is_refused_with_a_cure() -> None:
    @functional
    async def plain(text: str) -> str:
        return text

    things: list[tuple[Any, str]] = [
        (SequentialBuilder(participants=[Says(name="mine")]).build().as_agent("a"), "as_agent"),
        (Says(name="mine"), "use an Agent"),
        (plain, "holdfast.workflow"),
        (object(), "takes an Agent or a Workflow"),
    ]
    for thing, cure in things:
        with pytest.raises(TypeError, match=cure):
            durable(thing)
