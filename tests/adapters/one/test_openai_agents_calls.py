"""What the OpenAI Agents SDK calls in tasks of its own, in runs."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    OpenAIChatCompletionsModel,
    OutputGuardrail,
    RunConfig,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.sandboxes import UnixLocalSandboxClient

import holdfast
from holdfast.adapters.openai_agents import durable
from holdfast.testing import crash_everywhere
from holdfast.testing.model_server import Asked, ModelServer, Reply

set_tracing_disabled(True)
REAL = holdfast.SystemClock()


async def test_agents_of_guardrails_are_named_by_the_guardrails() -> None:
    def script(asked: Asked) -> Any:
        return "fine" if asked.body["model"] == "judge" else "Done."

    with ModelServer(script) as model:
        async with openai.AsyncOpenAI(base_url=model.url, api_key="any") as client:
            judge = Agent(name="judge", model=OpenAIChatCompletionsModel("judge", client))

            async def judged(ctx: Any, agent: Any, said: Any) -> GuardrailFunctionOutput:
                result = await Runner.run(judge, said)
                return GuardrailFunctionOutput(result.final_output, tripwire_triggered=False)

            agent = durable(
                Agent(
                    name="support",
                    model=OpenAIChatCompletionsModel("m", client),
                    input_guardrails=[InputGuardrail(judged, name="polite")],
                    output_guardrails=[OutputGuardrail(judged, name="true")],
                )
            )
            config = RunConfig(input_guardrails=[InputGuardrail(judged, name="short")])

            @holdfast.workflow
            async def asks() -> list[Any]:
                result = await Runner.run(agent, "hello", run_config=config)
                found: list[Any] = [
                    *result.input_guardrail_results,
                    *result.output_guardrail_results,
                ]
                return [
                    result.final_output,
                    *(f"{one.guardrail.get_name()}: {one.output.output_info}" for one in found),
                ]

            report = await crash_everywhere(asks, clock=REAL)
    assert report.result[0] == "Done."
    assert sorted(report.result[1:]) == ["polite: fine", "short: fine", "true: fine"]
    assert set(report.steps) == {
        "/model#0",
        "/guardrail:polite@0/model#0",
        "/guardrail:short@0/model#0",
        "/guardrail:true@0/model#0",
    }


async def test_a_tools_time_out_is_a_timer_named_by_its_call() -> None:
    @function_tool(timeout=0.01)
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    with ModelServer([Reply(tool_calls=[("slow", {})]), "Done."]) as model:
        async with openai.AsyncOpenAI(base_url=model.url, api_key="any") as client:
            chat = OpenAIChatCompletionsModel("m", client)
            agent = durable(Agent(name="support", model=chat, tools=[slow]))
            async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
                run = await app.start(agent, "hello")
                assert await asyncio.wait_for(run.result(), 120) == "Done."
                keys = {entry.key for entry in await app.history(run.id)}
        assert "timed out after 0.01" in model.requests[1].body["messages"][-1]["content"]
    assert {"/slow:call_0_0:timeout@0/timer#0", "/call_0_0@0/slow#0"} <= keys


async def test_an_agent_in_a_sandbox_is_a_part_of_the_tool_that_runs_it() -> None:
    def script(asked: Asked) -> Any:
        if asked.body["model"] == "coder":
            return "Coded."
        return [Reply(tool_calls=[("code", {"task": "it"})]), "Done."][asked.turn]

    with ModelServer(script) as model:
        async with openai.AsyncOpenAI(base_url=model.url, api_key="any") as client:
            inner = OpenAIChatCompletionsModel("coder", client)
            coder = SandboxAgent(name="coder", model=inner, capabilities=[])
            config = RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()))

            @function_tool
            async def code(task: str) -> str:
                return str((await Runner.run(coder, task, run_config=config)).final_output)

            chat = OpenAIChatCompletionsModel("m", client)
            agent = durable(Agent(name="boss", model=chat, tools=[code]))
            async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
                run = await app.start(agent, "hello")
                assert await asyncio.wait_for(run.result(), 120) == "Done."
                steps = [e.key for e in await app.history(run.id) if e.kind == "step"]
        assert "Coded." in str(model.requests[-1].body["messages"])
    assert steps == ["/model#0", "/call_0_0@0/code#0", "/model#1"]
