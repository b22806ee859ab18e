"""The many forms in which agents of Pydantic AI are used: in a run they give what they give without
one, and after a crash anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, NativeOutput, PromptedOutput, RunContext, UsageLimits
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.toolsets import FunctionToolset, WrapperToolset

import holdfast
from holdfast.adapters.pydantic_ai import durable
from holdfast.testing import crash_everywhere
from holdfast.testing.model_server import ModelServer, Reply, Script

Use = Callable[[Any], Awaitable[Any]]
Form = tuple[Script, Callable[[Any], Any], Use]


class Box(BaseModel):
    width: int


class Ball(BaseModel):
    radius: int


def using(*calls: tuple[str, dict[str, Any]]) -> list[Reply]:
    return [Reply(tool_calls=list(calls)), Reply(text="done")]


async def output_of(agent: Any) -> Any:
    return repr((await agent.run("go")).output)


async def returns_of(agent: Any) -> Any:
    """What tools have returned to the model."""
    messages = (await agent.run("go")).all_messages()
    parts = [part for message in messages for part in message.parts]
    return [
        str(part.content) for part in parts if part.part_kind in ("tool-return", "retry-prompt")
    ]


def one_of_several() -> Form:
    script = [Reply(tool_calls=[("final_result_Ball", {"radius": 3})])]
    kinds: Any = [Box, Ball]
    return script, lambda model: Agent(model, name="a", output_type=kinds), output_of


def native() -> Form:
    kind: Any = NativeOutput(Box)
    return ['{"width": 2}'], lambda model: Agent(model, name="a", output_type=kind), output_of


def prompted() -> Form:
    kind: Any = PromptedOutput(Box)
    return ['{"width": 2}'], lambda model: Agent(model, name="a", output_type=kind), output_of


def made_by_a_function() -> Form:
    def area(width: int, height: int) -> int:
        return width * height

    script = [Reply(tool_calls=[("final_result", {"width": 2, "height": 3})])]
    return script, lambda model: Agent(model, name="a", output_type=area), output_of


def refused_by_a_validator() -> Form:
    def make(model: Any) -> Any:
        agent = Agent(model, name="a", retries=2)

        @agent.output_validator
        def judge(ctx: RunContext[Any], output: str) -> str:
            if output != "good":
                raise ModelRetry(f"not {output}")
            return f"{output} after {ctx.retry}"

        return agent

    return ["bad", "worse", "good"], make, output_of


def refused_by_a_tool() -> Form:
    def make(model: Any) -> Any:
        agent = Agent(model, name="a", retries=2)

        @agent.tool
        async def take(ctx: RunContext[Any], n: int) -> str:
            if n == 1:
                raise ModelRetry("not that one")
            return f"took {n} after {ctx.retry}"

        return agent

    return [*using(("take", {"n": 1}))[:1], *using(("take", {"n": 2}))], make, returns_of


def wrapped_toolsets() -> Form:
    class Loud(WrapperToolset[Any]):
        async def call_tool(self, *args: Any) -> Any:
            return f"{await super().call_tool(*args)}!"

    def make(model: Any) -> Any:
        tools: FunctionToolset[Any] = FunctionToolset()

        @tools.tool_plain
        def look() -> str:
            return "looked"

        shown = Loud(tools.filtered(lambda ctx, tool: tool.name == "look")).prefixed("my")
        return Agent(model, name="a", toolsets=[shown])

    return using(("my_look", {})), make, returns_of


def looking(model: Any) -> Any:
    agent = Agent(model, name="a")

    @agent.tool_plain
    def look() -> str:
        return "looked"

    return agent


def limited() -> Form:
    async def use(agent: Any) -> Any:
        try:
            await agent.run("go", usage_limits=UsageLimits(request_limit=1))
        except UsageLimitExceeded as error:
            return str(error)

    return using(("look", {})), looking, use


def stepped_by_hand() -> Form:
    async def use(agent: Any) -> Any:
        async with agent.iter("go") as run:
            node, seen = run.next_node, []
            while not Agent.is_end_node(node):
                seen.append(type(node).__name__)
                node = await run.next(node)
            return [*seen, run.result.output]

    return using(("look", {})), looking, use


def overridden() -> Form:
    async def use(agent: Any) -> Any:
        with agent.override(instructions="Be kind"):
            result = await agent.run("go")
        return [result.output, result.all_messages()[0].instructions]

    return ["kind words"], lambda model: Agent(model, name="a"), use


def wrapped() -> Form:
    return ["done"], lambda model: WrapperAgent(Agent(model, name="a")), output_of


def beside_itself() -> Form:
    def script(asked: Any) -> Reply:
        return Reply(text=f"to {asked.body['messages'][0]['content']}")

    async def use(agent: Any) -> Any:
        results = await asyncio.gather(*(agent.run(f"q{n}") for n in range(2)))
        return [result.output for result in results]

    return script, lambda model: Agent(model, name="a"), use


FORMS: list[Callable[[], Form]] = [
    one_of_several,
    native,
    prompted,
    made_by_a_function,
    refused_by_a_validator,
    refused_by_a_tool,
    wrapped_toolsets,
    limited,
    stepped_by_hand,
    overridden,
    wrapped,
    beside_itself,
]
ANYWHERE = (refused_by_a_tool, wrapped_toolsets)  # of the rest only in the full tests


@pytest.mark.parametrize("form", FORMS)
async def test_an_agent_in_a_run_gives_what_it_gives_without(form: Callable[[], Form]) -> None:
    await check(form, anywhere=form in ANYWHERE)


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
async def test_and_after_a_crash_anywhere(form: Callable[[], Form]) -> None:
    await check(form, anywhere=True)


async def check(form: Callable[[], Form], *, anywhere: bool) -> None:
    script, make, use = form()
    with ModelServer(script) as server:
        provider = OpenAIProvider(base_url=server.url, api_key="any")
        model = OpenAIChatModel("m", provider=provider)
        expected = await use(make(model))
        asked = len(server.requests)
        agent = durable(make(model))

        @holdfast.workflow(name="uses")
        async def uses() -> Any:
            return await use(agent)

        async with holdfast.Holdfast(":memory:", workflows=[uses]) as app:
            run: Any = await app.start(uses)
            assert await asyncio.wait_for(run.result(), 120) == expected
        assert len(server.requests) == 2 * asked
        if anywhere:
            found = await crash_everywhere(uses, clock=holdfast.SystemClock())
            assert found.result == expected
        await model.client.close()
