"""What graphs stream inside of runs is what they stream outside, and comes again after a crash."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint, task

import holdfast
from holdfast.adapters.langgraph import durable
from holdfast.testing import crash_everywhere
from holdfast.testing.model_server import Asked, ModelServer, Reply

CHANGING = ("id", "run_id", "timestamp")
IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
Streams = Callable[[Callable[[Any], Any], ModelServer], AsyncIterator[Any]]


def answer(asked: Asked) -> Reply | str:
    if asked.prompt == "add" and asked.turn == 0:
        return Reply(tool_calls=[("add", {"a": 1, "b": 2})])
    return "It is\nthree."


def chat(model: ModelServer) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=model.url, api_key="any")  # type: ignore[arg-type]


def without_ids(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        called = getattr(value, "tool_calls", None), getattr(value, "tool_call_id", None)
        return [type(value).__name__, value.content, without_ids(called)]
    if isinstance(value, dict):
        return {k: without_ids(value[k]) for k in sorted(value) if k not in CHANGING}
    if isinstance(value, list | tuple):
        return [without_ids(item) for item in value]
    return IDS.sub("…", value) if isinstance(value, str) else value


async def agent(made: Callable[[Any], Any], model: ModelServer, **how: Any) -> AsyncIterator[Any]:
    @tool
    async def add(a: int, b: int) -> int:
        """Adds."""
        get_stream_writer()("adding")
        return a + b

    found = made(create_agent(chat(model), [add], name="agent"))
    given: Any = {"messages": [{"role": "user", "content": "add"}]}
    async for event in found.astream(given, **how):
        yield event


async def events(made: Callable[[Any], Any], model: ModelServer) -> AsyncIterator[Any]:
    """Of the third version, in which a model's answer comes as events."""

    @tool
    async def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    found = made(create_agent(chat(model), [add], name="agent"))
    given: Any = {"messages": [{"role": "user", "content": "add"}]}
    async for event in await found.astream_events(given, version="v3"):
        yield event["method"]


async def functions(made: Callable[[Any], Any], model: ModelServer) -> AsyncIterator[Any]:
    @task
    async def first(question: str) -> str:
        get_stream_writer()("first")
        return str((await chat(model).ainvoke(question)).text)

    @task
    def second(question: str) -> str:
        get_stream_writer()("second")
        return str(chat(model).invoke(question).text)

    @entrypoint()
    async def asks(question: str) -> list[str]:
        get_stream_writer()("asks")
        return [await first(question), await second(question)]

    modes = ["custom", "messages", "updates", "tasks"]
    async for event in made(asks).astream("why", stream_mode=modes):
        yield event


async def words_and_events(made: Callable[[Any], Any], model: ModelServer) -> AsyncIterator[Any]:
    @entrypoint()
    async def asks(question: str) -> str:
        tell = get_stream_writer()
        tell("before")
        said = str((await chat(model).ainvoke(question)).text)
        tell("after")
        return said

    async for event in made(asks).astream("why", stream_mode=["custom", "messages", "updates"]):
        yield event


def agent_by(**how: Any) -> Streams:
    def streams(made: Callable[[Any], Any], model: ModelServer) -> AsyncIterator[Any]:
        return agent(made, model, **how)

    return streams


MODES = ["values", "updates", "custom", "messages", "tools", "tasks", "debug"]
ALL: dict[str, Streams] = {
    **{mode: agent_by(stream_mode=mode) for mode in MODES},
    "second version": agent_by(stream_mode=["messages", "tools", "custom"], version="v2"),
    "third version": events,
    "functions": functions,
    "words and events": words_and_events,
}


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
@pytest.mark.parametrize("name", ALL)
async def test_a_graph_streams_what_it_streams_without_holdfast_also_after_a_crash(
    name: str,
) -> None:
    streams = ALL[name]
    with ModelServer(answer) as model:

        @holdfast.workflow
        async def reads() -> list[Any]:
            return [without_ids(event) async for event in streams(durable, model)]

        plain = [without_ids(event) async for event in streams(lambda graph: graph, model)]
        assert (await crash_everywhere(reads)).result == plain


async def test_an_entrypoint_may_save_something_else_than_it_returns() -> None:
    @entrypoint(checkpointer=InMemorySaver())
    async def counts(n: int, *, previous: int | None = None) -> Any:
        return entrypoint.final(value=[previous, n], save=n)

    flow: Any = durable(counts)

    @holdfast.workflow
    async def twice() -> list[Any]:
        config: Any = {"configurable": {"thread_id": "t"}}
        return [await flow.ainvoke(1, config), await flow.ainvoke(2, config)]

    assert (await crash_everywhere(twice)).result == [[None, 1], [1, 2]]
