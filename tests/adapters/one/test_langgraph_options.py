"""What durable() of LangGraph's graphs can be told, and what it refuses."""

from __future__ import annotations

import asyncio
import operator
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import langgraph.pregel._checkpoint
import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel

import holdfast
from holdfast.adapters.langgraph import durable
from holdfast.testing import crash_everywhere
from holdfast.testing.model_server import ModelServer, Reply

SOON = holdfast.Retry(attempts=3, backoff=timedelta(milliseconds=1))


class State(TypedDict):
    said: Annotated[list[Any], operator.add]


def chat(model: ModelServer, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=model.url, api_key="any", **options)  # type: ignore[arg-type]


def ask(question: str) -> Any:
    return {"messages": [{"role": "user", "content": question}]}


def graph_of(*nodes: Callable[..., Any], **options: Any) -> Any:
    """The nodes one after the other."""
    builder = StateGraph(State)
    before = START
    for node in nodes:
        builder.add_node(node.__name__, node)
        builder.add_edge(before, node.__name__)
        before = node.__name__
    return builder.compile(name="graph", **options)


async def result_of(started: Any, *args: Any, answers: Any = None) -> Any:
    async with holdfast.Holdfast(":memory:", workflows=[started]) as app:
        run = await app.start(started, *args)
        for name, value in (answers or {}).items():
            await run.resolve(name, value, early=True)
        return await asyncio.wait_for(run.result(), 120)


# A run of its own


async def test_an_agent_is_a_run_of_its_own_whose_result_is_its_state() -> None:
    with ModelServer(["yes"]) as model:
        state = await result_of(durable(create_agent(chat(model), name="agent")), ask("sure"))
        assert isinstance(state["messages"][-1], AIMessage)
        assert state["messages"][-1].text == "yes"
        usage: Any = state["messages"][-1].usage_metadata
        assert usage["total_tokens"] == 2


class Verdict(BaseModel):
    good: bool


async def test_a_structured_answer_comes_back_as_its_class() -> None:
    script = [Reply(tool_calls=[("Verdict", {"good": True})])]
    with ModelServer(script) as model:
        agent = durable(create_agent(chat(model), response_format=Verdict, name="agent"))
        assert (await result_of(agent, ask("well")))["structured_response"] == Verdict(good=True)


@dataclass
class Note:
    text: str


class Notes(TypedDict):
    notes: Annotated[list[Note], operator.add]


async def test_classes_in_the_annotations_of_a_state_need_not_be_registered() -> None:
    builder = StateGraph(Notes)
    builder.add_node("write", lambda state: {"notes": [Note("a")]})
    builder.add_edge(START, "write")
    found = await result_of(durable(builder.compile(name="notes")), {"notes": []})
    assert found == {"notes": [Note("a")]}


# Failures


async def test_a_model_is_asked_again_as_the_policy_says_and_then_another_one() -> None:
    script = {"hello": [Reply(status=500), Reply(status=503), Reply(status=429)]}
    with ModelServer(script) as broken, ModelServer(["from the other"]) as other:
        agent = create_agent(chat(broken), name="agent")
        state = await result_of(durable(agent, retry=SOON, models=[chat(other)]), ask("hello"))
        assert state["messages"][-1].text == "from the other"
        assert len(broken.requests) == 3 and len(other.requests) == 1
        assert len({asked.idempotency_key for asked in broken.requests} - {None}) == 1


async def test_a_tool_is_tried_again_before_the_framework_sees_its_failure() -> None:
    tries: list[str] = []

    @tool
    def flaky() -> str:
        """Fails twice."""
        tries.append(holdfast.idempotency_key())
        if len(tries) < 3:
            raise RuntimeError("not yet")
        return "done"

    with ModelServer([Reply(tool_calls=[("flaky", {})]), "well"]) as model:
        agent = create_agent(chat(model), [flaky], name="agent")
        state = await result_of(durable(agent, tools={"flaky": SOON}), ask("go"))
        assert [m.text for m in state["messages"]] == ["go", "", "done", "well"]
        assert len(tries) == 3 and len(set(tries)) == 1


async def test_arguments_that_do_not_fit_a_tool_are_told_to_the_model() -> None:
    @tool
    def add(a: int) -> int:
        """Adds."""
        return a + 1

    with ModelServer([Reply(tool_calls=[("add", {"a": "x"})]), "sorry"]) as model:
        state = await result_of(durable(create_agent(chat(model), [add], name="agent")), ask("go"))
        assert "valid integer" in state["messages"][2].text


async def test_a_context_overflow_is_an_error_of_its_own_and_can_be_dealt_with() -> None:
    def script(asked: Any) -> Reply:
        too_much = len(asked.body["messages"]) > 1
        code = "context_length_exceeded"
        return Reply(status=400, code=code, text="too long") if too_much else Reply(text="short")

    given = {"messages": [("user", "a"), ("ai", "b"), ("user", "c")]}
    with ModelServer(script) as model:
        agent = create_agent(chat(model), name="agent")
        with pytest.raises(holdfast.RunFailed) as failed:
            await result_of(durable(agent), given)
        assert isinstance(failed.value.__cause__, holdfast.ContextOverflow)
        shortened = durable(agent, on_overflow=lambda messages: messages[-1:])
        assert (await result_of(shortened, given))["messages"][-1].text == "short"


# People


async def test_without_approvals_the_caller_resumes_the_graph_as_ever() -> None:
    def draft(state: State) -> Any:
        return {"said": ["draft"]}

    def publish(state: State) -> Any:
        return {"said": [interrupt("title")]}

    made = durable(graph_of(draft, publish, checkpointer=InMemorySaver()), approvals=False)

    @holdfast.workflow
    async def asks() -> list[Any]:
        config: Any = {"configurable": {"thread_id": "t"}}
        state = await made.ainvoke({"said": []}, config)
        (stop,) = state["__interrupt__"]
        answer = await holdfast.promise(stop.value)
        state = await made.ainvoke(Command(resume={stop.id: answer}), config)
        return list(state["said"])

    report = await crash_everywhere(asks, answers={"title": "Owls"})
    assert report.result == ["draft", "Owls"]


async def test_a_tool_that_asks_waits_under_the_id_of_its_call() -> None:
    @tool
    def confirm(what: str) -> str:
        """Asks somebody."""
        return f"{what}: {interrupt(what)}"

    with ModelServer([Reply(tool_calls=[("confirm", {"what": "go"})]), "well"]) as model:
        agent = durable(create_agent(chat(model), [confirm], name="agent"))
        state = await result_of(agent, ask("hm"), answers={"call_0_0": "yes"})
        assert state["messages"][2].text == "go: yes"


# Threads


class Kept(BaseCheckpointSaver[Any]):
    """Outlives the runs, as a database would; and is only sync."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = InMemorySaver()

    def get_tuple(self, config: Any) -> Any:
        return self.inner.get_tuple(config)

    def put(self, *given: Any) -> Any:
        return self.inner.put(*given)

    def put_writes(self, *given: Any) -> None:
        self.inner.put_writes(*given)

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.inner.get_next_version(current, channel)


async def test_a_checkpointer_that_is_ahead_of_a_replay_changes_nothing() -> None:
    saver = Kept()

    def speak(state: State) -> Any:
        return {"said": [f"after {len(state['said'])}"]}

    made = durable(graph_of(speak, checkpointer=saver))

    @holdfast.workflow
    async def asks() -> list[Any]:
        config: Any = {"configurable": {"thread_id": str(holdfast.once(_fresh))}}
        await made.ainvoke({"said": ["one"]}, config)
        state = await made.ainvoke({"said": ["two"]}, config)
        kept = saver.get_tuple(config).checkpoint["channel_values"]["said"]
        return [*state["said"], len(kept)]

    report = await crash_everywhere(asks)
    assert report.result == ["one", "after 1", "two", "after 3", 4]


def _fresh() -> str:
    return uuid.uuid4().hex


# Other ways to use it


def test_a_def_workflow_invokes_and_streams() -> None:
    def left(state: State) -> Any:
        return {"said": ["left"]}

    def right(state: State) -> Any:
        return {"said": ["right"]}

    made = durable(graph_of(left, right))

    @holdfast.workflow
    def uses() -> list[Any]:
        state = made.invoke({"said": []})
        return [*state["said"], *[next(iter(event)) for event in made.stream({"said": []})]]

    app = holdfast.Holdfast(":memory:", workflows=[uses])
    with app.sync() as door:
        assert door.start(uses).result() == ["left", "right", "left", "right"]


async def test_tasks_of_the_functional_api_are_steps() -> None:
    @task
    async def double(n: int) -> int:
        return 2 * n

    @task
    def half(n: int) -> int:
        return n // 2

    @entrypoint()
    async def sums(given: int) -> int:
        doubled = await asyncio.gather(*(double(n) for n in range(given)))
        return sum(doubled) + await half(given)

    made = durable(sums, name="sums")
    async with holdfast.Holdfast(":memory:", workflows=[made]) as app:
        run = await app.start(made, 4)
        assert await asyncio.wait_for(run.result(), 120) == 14
        keys = [entry.key.rpartition("/")[2] for entry in await app.history(run.id)]
        assert keys.count("double#0") == 4 and keys.count("half#0") == 1


async def test_a_process_that_is_warm_replays_as_a_cold_one_would() -> None:
    with ModelServer([Reply(tool_calls=[("note", {"q": "x"})]), "done"]) as model:

        @tool
        def note(q: str) -> str:
            """Notes."""
            return q

        agent = durable(create_agent(chat(model), [note], name="agent"))

        @holdfast.workflow
        async def asks() -> str:
            state = await agent.ainvoke(ask("go"))
            return str(state["messages"][-1].text)

        report = await crash_everywhere(asks)  # all of it in this process
        assert report.result == "done"


async def test_outside_of_runs_it_is_the_graph_that_it_was() -> None:
    made = durable(graph_of(lambda_node := (lambda state: {"said": ["x"]})))
    assert isinstance(made, type(graph_of(lambda_node)))
    assert await made.ainvoke({"said": []}) == {"said": ["x"]} == made.invoke({"said": []})
    assert [event async for event in made.astream({"said": []})] == [{"<lambda>": {"said": ["x"]}}]
    assert made.with_config({"tags": ["a"]}).invoke({"said": []}) == {"said": ["x"]}
    made.get_graph()


# What it says and refuses


def test_it_explains_what_will_be_journaled(capsys: pytest.CaptureFixture[str]) -> None:
    def search(state: State) -> Any:
        return {}

    durable(graph_of(search), explain=True)
    assert "nodes: search" in capsys.readouterr().out


def test_a_graph_without_a_name_cannot_be_started_and_the_error_says_why() -> None:
    builder = StateGraph(State)
    builder.add_node("a", lambda state: {})
    builder.add_edge(START, "a")
    made = durable(builder.compile())
    with pytest.raises(holdfast.BadArguments, match="name="):
        holdfast.Holdfast(":memory:", workflows=[made])


@pytest.mark.parametrize("thing", [None, "graph", StateGraph(State)])
def test_what_is_no_compiled_graph_is_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match="compiled graph"):
        durable(thing)


def test_a_model_that_is_none_cannot_stand_in_for_another() -> None:
    def node(state: State) -> Any:
        return {}

    model: Any = "gpt-5"
    with pytest.raises(TypeError, match="models="):
        durable(graph_of(node), models=[model])


def test_a_missing_hook_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def node(state: State) -> Any:
        return {}

    graph = graph_of(node)
    monkeypatch.delattr(langgraph.pregel._checkpoint, "uuid6")
    with pytest.raises(holdfast.Unsupported, match="uuid6"):
        durable(graph)


async def test_a_call_without_a_thread_is_refused_as_it_is_without_holdfast() -> None:
    def node(state: State) -> Any:
        return {}

    graph = durable(graph_of(node, checkpointer=InMemorySaver()))
    with pytest.raises(holdfast.RunFailed, match="Checkpointer requires"):
        await result_of(graph, {"said": []})


async def test_what_a_tool_returns_and_cannot_be_recorded_is_named_with_its_cure() -> None:
    @tool(response_format="content_and_artifact")
    def opened() -> Any:
        """Opens."""
        return "open", object()

    with ModelServer([Reply(tool_calls=[("opened", {})]), "x"]) as model:
        agent = durable(create_agent(chat(model), [opened], name="agent"))
        with pytest.raises(holdfast.RunFailed, match=r"register\(object|opened:call_0_0"):
            await result_of(agent, ask("go"))
