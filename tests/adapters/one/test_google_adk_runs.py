"""Tools, people and runners of Google ADK, in runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.adk.agents import Context, LlmAgent
from google.adk.agents.run_config import RunConfig, ToolThreadPoolConfig
from google.adk.artifacts import InMemoryArtifactService
from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import (
    CodeExecutionInput,
    CodeExecutionResult,
)
from google.adk.models import Gemini
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext
from google.adk.workflow import Workflow
from google.genai import types
from pydantic import BaseModel

import holdfast
from holdfast.adapters.google_adk import durable
from holdfast.clock import SystemClock
from holdfast.testing.crashes import crash_everywhere
from holdfast.testing.model_server import Asked, ModelServer, Reply
from tests.adapters.one.google_adk_parts import (
    ONCE,
    SOON,
    Connect,
    asking,
    calls,
    clients,
    runner_of,
    texts,
)
from tests.adapters.outcomes import cause_of, result_of


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with clients() as connect:
        yield connect


# Tools


async def test_a_tool_is_tried_again_before_adk_sees_its_failure(connect: Connect) -> None:
    keys: list[str] = []
    seen: list[str] = []

    async def search(q: str) -> str:
        """Searches."""
        keys.append(holdfast.idempotency_key())
        if len(keys) < 3:
            raise ConnectionError("away")
        return "found"

    async def failed(tool: Any, args: Any, tool_context: Any, error: Exception) -> None:
        seen.append(str(error))

    with ModelServer(calls(("search", {"q": "a"}))) as model:
        agent = LlmAgent(
            name="support", model=connect(model), tools=[search], on_tool_error_callback=failed
        )
        assert await result_of(durable(agent, tools={"search": SOON}), "hello") == "Done."
    assert len(keys) == 3 and len(set(keys)) == 1 and seen == []


async def test_a_tool_that_fails_for_good_is_told_to_adks_callback(connect: Connect) -> None:
    async def search(q: str) -> str:
        """Searches."""
        raise ConnectionError("away")

    async def failed(tool: Any, args: Any, tool_context: Any, error: Exception) -> dict[str, Any]:
        return {"error": str(error)}

    with ModelServer(calls(("search", {"q": "a"}))) as model:
        agent = LlmAgent(
            name="support", model=connect(model), tools=[search], on_tool_error_callback=failed
        )
        assert await result_of(durable(agent, tools=ONCE), "hello") == "Done."
        told = model.requests[1].body["contents"][-1]["parts"][0]["functionResponse"]
        assert told["response"] == {"error": "away"}


async def test_parallel_tools_really_are(connect: Connect) -> None:
    both = asyncio.Barrier(2)

    async def search(q: str) -> str:
        """Searches."""
        await asyncio.wait_for(both.wait(), 120)
        return "found"

    with ModelServer(calls(("search", {"q": "a"}), ("search", {"q": "b"}))) as model:
        agent = durable(LlmAgent(name="support", model=connect(model), tools=[search]))
        assert await result_of(agent, "hello") == "Done."


async def test_a_result_that_cannot_be_encoded_names_the_cure(connect: Connect) -> None:
    class Odd:
        pass

    async def search(q: str) -> Any:
        """Searches."""
        return Odd()

    with ModelServer(calls(("search", {"q": "a"}))) as model:
        agent = durable(LlmAgent(name="support", model=connect(model), tools=[search]))
        cause = await cause_of(agent, "hello")
    assert isinstance(cause, holdfast.NotEncodable) and "holdfast.register" in str(cause)


async def test_a_sync_tool_may_call_steps_in_a_thread(connect: Connect) -> None:
    @holdfast.step
    def note(text: str) -> str:
        return f"noted {text}"

    def search(q: str) -> str:
        """Searches."""
        return note(q)

    with ModelServer(calls(("search", {"q": "a"}))) as model:
        runner = runner_of(durable(LlmAgent(name="s", model=connect(model), tools=[search])))
        config = RunConfig(tool_thread_pool_config=ToolThreadPoolConfig(max_workers=2))

        @holdfast.workflow
        async def asks() -> list[str]:
            events = [event async for event in runner.run_async(**asking(run_config=config))]
            return texts(events)

        assert await result_of(asks) == ["Done."]
        told = model.requests[1].body["contents"][-1]["parts"][0]["functionResponse"]
        assert told["response"] == {"result": "noted a"}


async def test_an_agent_for_a_single_turn_nests_under_its_call(connect: Connect) -> None:
    def script(asked: Asked) -> Any:
        if "You help." in str(asked.body["systemInstruction"]):
            return "Helped."
        return calls(("helper", {"request": "help"}))[asked.turn]

    with ModelServer(script) as model:
        helper = LlmAgent(
            name="helper", model=connect(model), instruction="You help.", mode="single_turn"
        )
        agent = durable(LlmAgent(name="boss", model=connect(model), sub_agents=[helper]))
        async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
            run = await app.start(agent, "hello")
            assert await asyncio.wait_for(run.result(), 120) == "Done."
            keys = [entry.key for entry in await app.history(run.id)]
        assert "/helper:call_0_0@0/helper.model#0" in keys


async def test_a_tool_that_runs_nodes_is_refused(connect: Connect) -> None:
    with ModelServer(calls(("delegate", {}))) as model:
        helper = LlmAgent(name="helper", model=connect(model), mode="single_turn")

        async def delegate(tool_context: ToolContext) -> Any:
            """Delegates."""
            return await tool_context.run_node(helper, node_input="help")

        agent = durable(LlmAgent(name="boss", model=connect(model), tools=[delegate]))
        cause = await cause_of(agent, "hello")
    assert isinstance(cause, holdfast.Unsupported) and "the node itself" in str(cause)


# People


def refunds(connect: Connect, model: ModelServer, done: list[str]) -> LlmAgent:
    async def refund(order: str) -> str:
        """Gives money back."""
        done.append(order)
        return f"refunded {order}"

    async def ticket(text: str) -> None:
        """Opens a ticket."""

    return LlmAgent(
        name="support",
        model=connect(model),
        tools=[FunctionTool(refund, require_confirmation=True), LongRunningFunctionTool(ticket)],
    )


ASKS = [("refund", {"order": "a"}), ("refund", {"order": "b"}), ("ticket", {"text": "c"})]


async def test_people_answer_one_by_one(connect: Connect) -> None:
    done: list[str] = []
    with ModelServer([Reply(tool_calls=ASKS), *["Done."] * 3]) as model:
        agent = durable(refunds(connect, model, done))
        async with holdfast.Holdfast(":memory:", workflows=[agent]) as app:
            run = await app.start(agent, "hello")
            await run.resolve("refund:call_0_1", holdfast.Decision(approved=True), early=True)
            await run.resolve("ticket:call_0_2", {"closed": True}, early=True)
            assert done == []
            await run.resolve("refund:call_0_0", holdfast.Decision(approved=False), early=True)
            assert await asyncio.wait_for(run.result(), 120) == "Done."
        assert done == ["b"]
        told = str(model.requests[-1].body["contents"])
        assert "This tool call is rejected." in told and "'closed': True" in told


async def test_without_approvals_the_caller_is_asked(connect: Connect) -> None:
    done: list[str] = []
    with ModelServer([Reply(tool_calls=ASKS[:1]), *["Done."] * 3]) as model:
        runner = runner_of(durable(refunds(connect, model, done), approvals=False))

        @holdfast.workflow
        async def asks() -> list[str]:
            events = [event async for event in runner.run_async(**asking())]
            asked = [call for event in events for call in event.get_function_calls()][-1]
            assert asked.name == "adk_request_confirmation"
            answer = types.FunctionResponse(
                id=asked.id, name=asked.name, response={"confirmed": True}
            )
            message = types.Content(role="user", parts=[types.Part(function_response=answer)])
            events = [e async for e in runner.run_async(**{**asking(), "new_message": message})]
            return texts(events)

        assert await result_of(asks) == ["Done."]
        assert done == ["a"]


# Runners


def test_run_is_for_workflows_in_threads() -> None:
    with ModelServer({"hello": "yes"}) as model:
        gemini = Gemini(model="gemini-m", base_url=model.url, client_kwargs={"api_key": "any"})
        runner = runner_of(durable(LlmAgent(name="support", model=gemini)))

        @holdfast.workflow
        def asks() -> list[str]:
            return texts(list(runner.run(**asking())))

        @holdfast.workflow
        async def blocks() -> list[str]:
            return texts(list(runner.run(**asking())))

        async def both() -> tuple[Any, BaseException]:
            found = await result_of(asks), await cause_of(blocks)
            await gemini.api_client.aio.aclose()
            gemini.api_client.close()
            return found

        said, refused = asyncio.run(both())
        assert said == ["yes"]
        assert isinstance(refused, holdfast.NotInRun) and "run_async" in str(refused)
        assert len(model.requests) == 1


async def test_a_run_goes_on_in_a_process_whose_sessions_are_still_there(connect: Connect) -> None:
    """Replayed, it must not find in the session what it has added itself."""

    async def search(q: str, tool_context: ToolContext) -> str:
        """Searches."""
        tool_context.state["found"] = tool_context.state.get("found", 0) + 1
        return f"found {q}"

    with ModelServer([Reply(tool_calls=[("search", {"q": "a"})]), "One.", "Two."]) as model:
        runner = runner_of(durable(LlmAgent(name="s", model=connect(model), tools=[search])))

        @holdfast.workflow
        async def asks() -> list[Any]:
            said, session = [], str(holdfast.uuid4())
            for question in ("hello", "and"):
                given = {**asking(question), "session_id": session}
                said += texts([event async for event in runner.run_async(**given)])
            known = await runner.session_service.get_session(
                app_name="app", user_id="ada", session_id=session
            )
            assert known is not None
            return [said, len(known.events), known.state["found"]]

        report = await crash_everywhere(asks, clock=SystemClock())
        assert report.result == [["One.", "Two."], 6, 1]


async def test_a_result_has_the_class_of_the_agents_schema(connect: Connect) -> None:
    class City(BaseModel):
        name: str

    with ModelServer({"hello": '{"name": "Oslo"}'}) as model:
        agent = durable(LlmAgent(name="support", model=connect(model), output_schema=City))
        assert await result_of(agent, "hello") == City(name="Oslo")


async def test_outside_of_runs_nothing_changes(connect: Connect) -> None:
    with ModelServer({"hello": "yes"}) as model:
        runner = runner_of(durable(LlmAgent(name="support", model=connect(model))))
        assert texts([event async for event in runner.run_async(**asking())]) == ["yes"]
        assert model.requests[0].idempotency_key is None


async def test_live_sessions_are_refused_in_runs(connect: Connect) -> None:
    runner = runner_of(durable(LlmAgent(name="support", model="gemini-m")))

    @holdfast.workflow
    async def lives() -> None:
        queue: Any = None
        async for _ in runner.run_live(user_id="u", session_id="s", live_request_queue=queue):
            pass

    assert isinstance(await cause_of(lives), holdfast.Unsupported)


async def test_a_nodes_route_is_the_same_on_replay() -> None:
    async def count(node_input: Any, ctx: Context) -> int:
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        ctx.route = "again" if ctx.state["count"] < 3 else "enough"
        return int(ctx.state["count"])

    async def end(node_input: int, ctx: Context) -> None:
        ctx.output = f"counted to {node_input}"

    edges: list[Any] = [("START", count), (count, {"again": count, "enough": end})]
    workflow = vars(durable(Workflow(name="counts", edges=edges)))["__holdfast_workflow__"]
    report = await crash_everywhere(workflow, "hello", clock=SystemClock())
    assert report.result == "counted to 3"


async def test_code_that_a_model_has_written_is_executed_once(connect: Connect) -> None:
    class Executes(BaseCodeExecutor):
        def execute_code(
            self, invocation_context: Any, code_execution_input: CodeExecutionInput
        ) -> CodeExecutionResult:
            return CodeExecutionResult(stdout=f"of {code_execution_input.code}")

    def script(asked: Asked) -> str:
        return "It is 4." if asked.turn else "```tool_code\nprint(2 + 2)\n```"

    with ModelServer(script) as model:
        runner = runner_of(
            LlmAgent(name="support", model=connect(model), code_executor=Executes()),
            artifact_service=InMemoryArtifactService(),
        )
        workflow = vars(durable(runner))["__holdfast_workflow__"]
        report = await crash_everywhere(workflow, "hello", clock=SystemClock())
        assert report.result == "It is 4." and report.steps["/support.code#0"] == 1
        assert "of print(2 + 2)" in str(model.requests[-1].body["contents"])
