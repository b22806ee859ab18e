"""What a graph gives in a run is what it gives without: results, streams, errors."""

from __future__ import annotations

import asyncio
import operator
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.cache.memory import InMemoryCache
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy, Command, RetryPolicy, Send

import holdfast
from holdfast.adapters.langgraph import durable
from holdfast.testing.model_server import ModelServer, Reply

ONCE = holdfast.Retry(attempts=1)


class State(TypedDict, total=False):
    said: Annotated[list[Any], operator.add]
    number: int


def chain(*nodes: tuple[str, Any], **compiled: Any) -> Any:
    builder = StateGraph(State)
    before = START
    for name, node in nodes:
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    return builder.compile(name="graph", **compiled)


def fans_out(**compiled: Any) -> Any:
    async def work(state: Any) -> State:
        return {"said": [state["number"] * 10]}

    def several(state: State) -> list[Send]:
        return [Send("work", {"number": n}) for n in range(state["number"])]

    builder = StateGraph(State)
    builder.add_node("plan", lambda state: {"number": 3})
    builder.add_node("work", work)
    builder.add_node("join", lambda state: {"said": [sum(state["said"])]}, defer=True)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", several, ["work"])
    builder.add_edge("work", "join")
    return builder.compile(name="graph", **compiled)


def hands_over() -> Any:
    def to_third(state: State) -> Command[str]:
        return Command(goto="third", update={"said": [1]})

    builder = StateGraph(State)
    builder.add_node("first", to_third, destinations=("second", "third"))
    builder.add_node("second", lambda state: {"said": [2]})
    builder.add_node("third", lambda state: {"said": [3]})
    builder.add_edge(START, "first")
    return builder.compile(name="graph")


def streams() -> Any:
    async def tells(state: State) -> State:
        write = get_stream_writer()
        write({"part": 1})
        write({"part": 2})
        return {"said": ["told"]}

    def tells_in_thread(state: State) -> State:
        get_stream_writer()("from a thread")
        return {"said": ["told again"]}

    return chain(("tells", tells), ("in_thread", tells_in_thread))


def has_another_inside() -> Any:
    return chain(("inside", streams()), ("after", lambda state: {"said": ["after"]}))


def reads_its_surroundings() -> Any:
    async def counts(state: State, runtime: Runtime[Any]) -> State:
        assert runtime.store is not None
        found = await runtime.store.aget(("notes",), "count")
        count = found.value["count"] if found else 0
        await runtime.store.aput(("notes",), "count", {"count": count + 1})
        return {"said": [runtime.context["who"], count]}

    def reads(state: State, config: RunnableConfig) -> State:
        given: Any = config
        return {"said": [given["configurable"]["x"], given["tags"], given["metadata"]["m"]]}

    return chain(("counts", counts), ("reads", reads), store=InMemoryStore())


def fails_at_first() -> Any:
    tries: list[int] = []

    async def flaky(state: State) -> State:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return {"said": [len(tries)]}

    builder = StateGraph(State)
    policy = RetryPolicy(initial_interval=0.001, max_attempts=4)
    builder.add_node("flaky", flaky, retry_policy=policy)
    builder.add_edge(START, "flaky")
    return builder.compile(name="graph")


def remembers() -> Any:
    calls: list[int] = []

    def counts(state: State) -> State:
        calls.append(1)
        return {"said": [len(calls)]}

    builder = StateGraph(State)
    builder.add_node("counts", counts, cache_policy=CachePolicy())
    builder.add_edge(START, "counts")
    return builder.compile(name="graph", cache=InMemoryCache())


def never_ends() -> Any:
    builder = StateGraph(State)
    builder.add_node("again", lambda state: {"said": [1]})
    builder.add_edge(START, "again")
    builder.add_edge("again", "again")
    return builder.compile(name="graph")


def keeps_threads() -> Any:
    return fans_out(checkpointer=InMemorySaver())


THREAD: Any = {"configurable": {"thread_id": "1"}}
NOTHING: Any = {"said": []}


async def invoked(graph: Any) -> Any:
    return await graph.ainvoke(NOTHING)


async def invoked_twice(graph: Any) -> Any:
    return [await graph.ainvoke(NOTHING), await graph.ainvoke(NOTHING)]


async def invoked_in_batches(graph: Any) -> Any:
    return await graph.abatch([{"said": [1]}, {"said": [2]}])


async def updates_of_some_keys(graph: Any) -> Any:
    return await graph.ainvoke(NOTHING, output_keys=["said"], stream_mode="updates")


async def with_surroundings(graph: Any) -> Any:
    config = {"configurable": {"x": 7}, "tags": ["tag"], "metadata": {"m": 1}}
    return [await graph.ainvoke(NOTHING, config, context={"who": "ada"}) for _ in range(2)]


async def until_it_is_too_much(graph: Any) -> Any:
    return await graph.ainvoke(NOTHING, {"recursion_limit": 5})


async def events(graph: Any) -> Any:
    heard = graph.astream_events(NOTHING, version="v2")
    return [(one["event"], one["name"], one["data"]) async for one in heard]


async def stops_before_a_node(graph: Any) -> Any:
    stopped = await graph.ainvoke(NOTHING, THREAD, interrupt_before=["join"])
    state = await graph.aget_state(THREAD)
    return [stopped, state.next, await graph.ainvoke(None, THREAD)]


async def goes_on_with_its_thread(graph: Any) -> Any:
    said = [await graph.ainvoke(NOTHING, THREAD), await graph.ainvoke({"said": [5]}, THREAD)]
    return [*said, (await graph.aget_state(THREAD)).values]


async def is_corrected(graph: Any) -> Any:
    await graph.ainvoke(NOTHING, THREAD)
    await graph.aupdate_state(THREAD, {"said": ["corrected"]})
    return (await graph.aget_state(THREAD)).values


def streamed(mode: Any, **options: Any) -> Callable[[Any], Awaitable[Any]]:
    async def read(graph: Any) -> Any:
        return [piece async for piece in graph.astream(NOTHING, stream_mode=mode, **options)]

    return read


ALL_MODES = ["values", "updates", "custom", "messages", "tasks", "debug"]
CALLS = [
    (fans_out, invoked),
    (fans_out, invoked_in_batches),
    (fans_out, updates_of_some_keys),
    (fans_out, streamed("updates")),
    (hands_over, invoked),
    (reads_its_surroundings, with_surroundings),
    (fails_at_first, invoked),
    (remembers, invoked_twice),
    (never_ends, until_it_is_too_much),
    (has_another_inside, events),
    (keeps_threads, stops_before_a_node),
    (keeps_threads, goes_on_with_its_thread),
    (keeps_threads, is_corrected),
    (streams, streamed(ALL_MODES)),
    (streams, streamed("custom")),
    (streams, streamed(["updates", "custom"], version="v2")),
    *[(has_another_inside, streamed(mode, subgraphs=True)) for mode in ALL_MODES],
]


async def outcome(call: Callable[[Any], Awaitable[Any]], graph: Any) -> str:
    """Without what differs each time: ids, times, and names of tasks."""
    try:
        said = repr(await call(graph))
    except Exception as error:
        said = repr(error)
    said = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>", said)
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+", "<time>", said)


@pytest.mark.parametrize(("make", "call"), CALLS)
async def test_in_a_run_a_graph_gives_what_it_gives_without(
    make: Callable[[], Any], call: Callable[[Any], Awaitable[Any]]
) -> None:
    graph = durable(make())

    @holdfast.workflow
    async def in_a_run() -> str:
        return await outcome(call, graph)

    async with holdfast.Holdfast(":memory:", workflows=[in_a_run]) as app:
        run = await app.start(in_a_run)
        found = await asyncio.wait_for(run.result(), 60)
    assert found == await outcome(call, make())


# Models


class Parrot(BaseChatModel):
    """Of a provider that nobody has heard of. It cannot stream."""

    broken: bool = False
    calls: bool = False  # a tool, once

    @property
    def _llm_type(self) -> str:
        return "parrot"

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        if self.broken:
            raise ConnectionError("not to be reached")
        said = AIMessage(f"{messages[-1].text}, {messages[-1].text}")
        if self.calls:
            said.tool_calls = [{"name": "look", "args": {"at": "it"}, "id": "call_1"}]
            self.calls = False
        return ChatResult(generations=[ChatGeneration(message=said)])


def chat(model: ModelServer) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=model.url, api_key="any")  # type: ignore[arg-type]


async def said_by(agent: Any, *messages: Any) -> list[str]:
    """What is streamed of its answer, and the answer."""

    @holdfast.workflow
    async def asks() -> list[str]:
        given = {"messages": list(messages)}
        pieces = [
            piece.text
            async for piece, _ in agent.astream(given, stream_mode="messages")
            if piece.text
        ]
        return [*pieces, (await agent.ainvoke(given))["messages"][-1].text]

    async with holdfast.Holdfast(":memory:", workflows=[asks]) as app:
        run = await app.start(asks)
        return await asyncio.wait_for(run.result(), 60)


async def test_models_of_any_provider_stand_in_for_each_other() -> None:
    with ModelServer(["Indeed."] * 2) as server:
        agent = create_agent(Parrot(broken=True), name="agent")
        durably = durable(agent, retry=ONCE, models=[chat(server)])
        assert await said_by(durably, ("user", "hello")) == ["Indeed."] * 2
    with ModelServer([Reply(status=500)] * 2) as server:
        agent = create_agent(chat(server), name="agent")
        durably = durable(agent, retry=ONCE, models=[Parrot()])
        assert await said_by(durably, ("user", "hello")) == ["hello, hello"] * 2
        assert len(server.requests) == 2


async def test_a_model_that_cannot_stream_calls_tools_in_the_place_of_one_that_does() -> None:
    seen: list[str] = []

    @tool
    def look(at: str) -> str:
        """Looks."""
        seen.append(at)
        return "seen"

    class Takes(Parrot):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self.bind(tools=tools)

    with ModelServer([Reply(status=500)] * 3) as server:
        agent = create_agent(chat(server), [look], name="agent")
        durably = durable(agent, retry=ONCE, models=[Takes(calls=True)])
        said = await said_by(durably, ("user", "hello"))
    assert said == ["hello, hello", "seen", "seen, seen", "hello, hello"] and seen == ["it"]


async def test_another_model_that_is_asked_streams_as_well() -> None:
    indeed = Reply(text="Indeed.", chunk=3)
    with ModelServer([Reply(status=500)] * 2) as broken, ModelServer([indeed] * 2) as other:
        agent = create_agent(chat(broken), name="agent")
        durably = durable(agent, retry=ONCE, models=[chat(other)])
        assert await said_by(durably, ("user", "hello")) == ["Ind", "eed", ".", "Indeed."]


async def test_what_makes_messages_shorter_may_take_its_time() -> None:
    def script(asked: Any) -> Reply:
        too_much = len(asked.body["messages"]) > 1
        code = "context_length_exceeded"
        return Reply(status=400, code=code, text="too long") if too_much else Reply(text="short")

    async def shorten(messages: list[Any]) -> list[Any]:
        await asyncio.sleep(0)
        return messages[-1:]

    with ModelServer(script) as server:
        agent = durable(create_agent(chat(server), name="agent"), on_overflow=shorten)
        assert (await said_by(agent, ("user", "a"), ("ai", "b"), ("user", "c")))[-1] == "short"


# Channels


def add(before: list[int], new: Any) -> list[int]:
    return [*before, *(one for some in new for one in some)]


class Deltas(TypedDict, total=False):
    said: Annotated[list[int], DeltaChannel(add)]


async def test_delta_channels_are_refused_together_with_a_checkpointer() -> None:
    builder = StateGraph(Deltas)
    builder.add_node("says", lambda state: {"said": [1]})
    builder.add_edge(START, "says")
    graph = durable(builder.compile(name="graph", checkpointer=InMemorySaver()))
    async with holdfast.Holdfast(":memory:", workflows=[graph]) as app:
        run = await app.start(graph, {"said": []}, THREAD)
        with pytest.raises(holdfast.RunFailed, match="DeltaChannels") as failed:
            await asyncio.wait_for(run.result(), 60)
        assert isinstance(failed.value.__cause__, holdfast.Unsupported)
