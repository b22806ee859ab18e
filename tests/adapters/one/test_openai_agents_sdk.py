"""What `durable` makes of agents of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    OpenAIChatCompletionsModel,
    RunConfig,
    RunContextWrapper,
    Runner,
    ToolOutputText,
    Usage,
    function_tool,
    handoff,
    set_tracing_disabled,
)
from agents.models import openai_provider
from agents.models.openai_provider import OpenAIProvider, shared_http_client
from agents.run import get_default_agent_runner, set_default_agent_runner
from pydantic import BaseModel

import holdfast
from holdfast.adapters.openai_agents import durable
from holdfast.testing import Environment
from holdfast.testing.model_server import Asked, ModelServer, Reply

set_tracing_disabled(True)

SOON = holdfast.Retry(attempts=3, backoff=timedelta(milliseconds=1))

Connect = Callable[[ModelServer], Any]


@pytest.fixture(autouse=True)
def runner() -> Iterator[None]:
    before = get_default_agent_runner()
    yield
    set_default_agent_runner(before)


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[openai.AsyncOpenAI] = []

    def connect(model: ModelServer, name: str = "m") -> Any:
        clients.append(openai.AsyncOpenAI(base_url=model.url, api_key="any"))
        return OpenAIChatCompletionsModel(name, clients[-1])

    yield connect
    for client in clients:
        await client.close()


@function_tool
async def search(q: str) -> str:
    return f"found {q}"


def calls(*tools: Any, then: Any = "Done.") -> list[Any]:
    """A script: the model calls these, and then says something."""
    return [Reply(tool_calls=tools), then]


async def run_of(workflow: Any, *args: Any, **options: Any) -> tuple[Any, list[str]]:
    """A run's result and its keys."""
    async with holdfast.Holdfast(":memory:", workflows=[workflow]) as app:
        run = await app.with_options(**options).start(workflow, *args)
        result = await asyncio.wait_for(run.result(), 120)
        return result, [entry.key for entry in await app.history(run.id)]


async def replayed(workflow: Any, *args: Any) -> Any:
    """The result of a run that was crashed while it slept an hour, and replayed."""
    async with Environment([workflow]) as env:
        run = await env.start(workflow, *args)
        await env.settle()
        await env.crash()
        await env.advance(timedelta(hours=2))
        return await env.result(run)


# Steps


async def test_calls_of_models_and_tools_are_steps(connect: Connect) -> None:
    with ModelServer(calls(("search", {"q": "a"}), ("search", {"q": "b"}))) as model:
        agent = durable(Agent(name="support", model=connect(model), tools=[search]))
        result, keys = await run_of(agent, "hello")
        assert result == "Done."
        first, *both, last = [key for key in keys if "#" in key]
        assert (first, last) == ("/model#0", "/model#1")
        assert sorted(both) == ["/call_0_0@0/search#0", "/call_0_1@0/search#0"]


async def test_parallel_tools_are_parallel(connect: Connect) -> None:
    both = asyncio.Barrier(2)

    @function_tool
    async def meet(who: str) -> str:
        await asyncio.wait_for(both.wait(), 120)
        return who

    with ModelServer(calls(("meet", {"who": "a"}), ("meet", {"who": "b"}))) as model:
        agent = durable(Agent(name="support", model=connect(model), tools=[meet]))
        assert (await run_of(agent, "hello"))[0] == "Done."


async def test_outside_of_runs_it_is_the_agent_it_was(connect: Connect) -> None:
    with ModelServer(calls(("search", {"q": "a"}))) as model:
        agent = durable(Agent(name="support", model=connect(model), tools=[search]))
        assert isinstance(agent, Agent)
        result = await Runner.run(agent, "hello")
        assert (result.final_output, result.last_agent) == ("Done.", agent)
        assert model.requests[0].idempotency_key is None


async def test_a_model_named_in_the_run_config_is_durable(connect: Connect) -> None:
    with ModelServer(["yes"]) as model:
        client = openai.AsyncOpenAI(base_url=model.url, api_key="any")
        provider = OpenAIProvider(openai_client=client, use_responses=False)
        agent = durable(Agent(name="support"))

        @holdfast.workflow
        async def asks() -> Any:
            config = RunConfig(model="other", model_provider=provider)
            result = await Runner.run(agent, "hello", run_config=config)
            return result.final_output

        async with client:
            result, keys = await run_of(asks)
        assert result == "yes" and "/model#0" in keys
        assert model.requests[0].body["model"] == "other"
        assert model.requests[0].idempotency_key is not None


class Verdict(BaseModel):
    good: bool


async def test_a_typed_output_is_the_runs_result(connect: Connect) -> None:
    with ModelServer(['{"good": true}']) as model:
        agent = durable(Agent(name="judge", model=connect(model), output_type=Verdict))
        assert (await run_of(agent, "hello"))[0] == Verdict(good=True)


async def test_tools_give_on_replay_what_they_gave(connect: Connect) -> None:
    given: list[Any] = []

    @function_tool
    async def judge() -> Verdict:
        return Verdict(good=True)

    @function_tool
    async def show() -> list[ToolOutputText]:
        return [ToolOutputText(text="seen")]

    with ModelServer(calls(("judge", {}), ("show", {}))) as model:
        agent = durable(Agent(name="support", model=connect(model), tools=[judge, show]))

        @holdfast.workflow
        async def asks() -> Any:
            result = await Runner.run(agent, "hello")
            given.append([item.to_input_item() for item in result.new_items])
            given.append([getattr(item, "output", None) for item in result.new_items])
            await holdfast.sleep(timedelta(hours=1))
            return result.context_wrapper.usage.requests

        assert await replayed(asks) == 2
        assert given[:2] == given[2:]
        assert Verdict(good=True) in given[3] and len(model.requests) == 2


# State


@dataclass
class Desk:
    seen: list[str] = field(default_factory=list)
    verdict: Verdict | None = None
    client: Any = None


async def test_what_tools_change_in_the_context_is_restored(connect: Connect) -> None:
    desks: list[Desk] = []

    @function_tool
    async def look(ctx: RunContextWrapper[Desk], what: str) -> str:
        ctx.context.seen.append(what)
        ctx.context.verdict = Verdict(good=what == "b")
        ctx.usage.add(Usage(requests=7, input_tokens=3, total_tokens=3))
        return what

    with ModelServer(
        [*calls(("look", {"what": "a"}), then=Reply(tool_calls=[("look", {"what": "b"})])), "Done."]
    ) as model:
        agent = durable(Agent(name="support", model=connect(model), tools=[look]))

        @holdfast.workflow
        async def asks() -> Any:
            desks.append(Desk(client=object()))
            result = await Runner.run(agent, "hello", context=desks[-1])
            await holdfast.sleep(timedelta(hours=1))
            return result.context_wrapper.usage.requests

        assert await replayed(asks) == 3 + 2 * 7
        assert len(desks) == 2
        for desk in desks:
            assert (desk.seen, desk.verdict) == (["a", "b"], Verdict(good=True))


async def test_usage_of_agents_used_as_tools_is_restored(connect: Connect) -> None:
    def script(asked: Asked) -> Any:
        if asked.prompt == "look":
            return "seen"
        return [Reply(tool_calls=[("helper", {"input": "look"})]), "Done."][asked.turn]

    with ModelServer(script) as model:
        helper = Agent(name="helper", model=connect(model))
        tool = helper.as_tool("helper", "helps")
        agent = durable(Agent(name="support", model=connect(model), tools=[tool]))

        @holdfast.workflow
        async def asks() -> Any:
            result = await Runner.run(agent, "hello")
            await holdfast.sleep(timedelta(hours=1))
            return result.context_wrapper.usage.requests

        assert await replayed(asks) == 3
        assert len(model.requests) == 3
        keys = (await run_of(asks_without_sleep(agent)))[1]
        assert "/helper:call_0_0@0/model#0" in keys


def asks_without_sleep(agent: Any) -> Any:
    @holdfast.workflow
    async def asks() -> Any:
        return (await Runner.run(agent, "hello")).final_output

    return asks


# Processes


async def test_a_run_goes_on_where_clients_are_made_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first run of a process makes the clients, and asks in threads what it runs on; the run
    that is taken over finds both."""
    with ModelServer(calls(("search", {"q": "a"}))) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        agent = durable(Agent(name="support", model="m", tools=[search]))

        @holdfast.workflow
        async def asks(question: str) -> Any:
            result = await Runner.run(agent, question)
            await holdfast.sleep(timedelta(hours=1))
            return result.final_output

        async with Environment([asks]) as env:
            first = await env.start(asks, "cold")
            await env.settle()
            second = await env.start(asks, "warm")
            await env.settle()
            await env.crash()
            await env.advance(timedelta(hours=2))
            assert [await env.result(run) for run in (first, second)] == ["Done."] * 2
        assert len(model.requests) == 4
    await shared_http_client().aclose()
    monkeypatch.setattr(openai_provider, "_http_client", None)


# Agents


async def test_handoffs_go_to_durable_agents(connect: Connect) -> None:
    def script(asked: Asked) -> Any:
        system = asked.body["messages"][0]["content"]
        if system == "Answer.":
            return [None, Reply(tool_calls=[("search", {"q": "a"})]), "Answered."][asked.turn]
        return Reply(tool_calls=[("transfer_to_billing", {})])

    with ModelServer(script) as model:
        billing = Agent(
            name="billing", instructions="Answer.", model=connect(model), tools=[search]
        )
        triage = Agent(name="triage", instructions="Ask.", model=connect(model))
        billing.handoffs.append(triage)
        triage.handoffs.append(handoff(billing))
        agent = durable(triage)
        result, keys = await run_of(agent, "hello")
        assert result == "Answered."
        assert len([key for key in keys if "model#" in key]) == 3
        assert "/call_1_0@0/search#0" in keys


async def test_clones_and_tools_that_come_later_are_durable(connect: Connect) -> None:
    @function_tool
    async def look(q: str) -> str:
        return f"saw {q}"

    with ModelServer(calls(("search", {"q": "a"}), ("look", {"q": "b"}))) as model:
        agent = durable(Agent(name="support", model=connect(model)))
        clone = agent.clone(tools=[search])
        clone.tools.append(look)
        keys = (await run_of(asks_without_sleep(clone)))[1]
        assert {"/model#1", "/call_0_0@0/search#0", "/call_0_1@0/look#0"} <= set(keys)


async def test_the_last_durable_decides(connect: Connect) -> None:
    tries: list[int] = []

    @function_tool
    async def flaky() -> str:
        tries.append(1)
        raise ConnectionError("no")

    with ModelServer(calls(("flaky", {}))) as model:
        agent = durable(Agent(name="support", model=connect(model), tools=[flaky]), tools=SOON)
        agent = durable(agent, tools=holdfast.Retry(attempts=2, backoff=timedelta(milliseconds=1)))
        assert (await run_of(agent, "hello"))[0] == "Done."
        assert len(tries) == 2


async def test_agents_run_by_guardrails_and_tools_are_durable(connect: Connect) -> None:
    with ModelServer({"hello": "fine", "main": calls(("delegate", {}))}) as model:
        checker = Agent(name="checker", model=connect(model))

        async def check(ctx: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
            result = await Runner.run(checker, "hello")
            return GuardrailFunctionOutput(result.final_output, False)

        @function_tool
        async def delegate() -> str:
            return str((await Runner.run(checker, "hello")).final_output)

        agent = durable(
            Agent(
                name="support",
                model=connect(model),
                tools=[delegate],
                input_guardrails=[InputGuardrail(check)],
            )
        )
        result, keys = await run_of(agent, "main")
        assert result == "Done."
        assert len([key for key in keys if "model#" in key]) == 4
        assert "/call_0_0@0/delegate#0/model#0" in keys


# Sync


def test_run_sync_is_used_in_def_workflows() -> None:
    with ModelServer(calls(("search", {"q": "a"}))) as model:
        close = {"Connection": "close"}  # its event loop ends with the door
        client = openai.AsyncOpenAI(base_url=model.url, api_key="any", default_headers=close)
        chat = OpenAIChatCompletionsModel("m", client)
        agent = durable(Agent(name="support", model=chat, tools=[search]))

        @holdfast.workflow
        def asks() -> Any:
            return Runner.run_sync(agent, "hello").final_output

        with holdfast.Holdfast(":memory:", workflows=[asks]).sync() as door:
            assert door.start(asks).result() == "Done."
        assert {asked.idempotency_key is None for asked in model.requests} == {False}


async def test_run_sync_in_an_async_workflow_names_the_cure(connect: Connect) -> None:
    agent = durable(Agent(name="support"))

    @holdfast.workflow
    async def asks() -> Any:
        return Runner.run_sync(agent, "hello").final_output

    with pytest.raises(holdfast.RunFailed, match=r"await Runner\.run"):
        await run_of(asks)
