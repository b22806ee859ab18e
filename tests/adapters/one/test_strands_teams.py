"""Graphs and swarms of AWS Strands."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from strands import Agent
from strands.hooks import BeforeNodeCallEvent
from strands.models.openai import OpenAIModel
from strands.multiagent import GraphBuilder, Swarm

import holdfast
from holdfast.adapters.strands import durable
from holdfast.testing.model_server import Asked, ModelServer, Reply
from tests.adapters.outcomes import cause_of, result_of

ONCE = holdfast.Retry(attempts=1)


def made(server: ModelServer, name: str, **options: Any) -> Agent:
    args = {"base_url": server.url, "api_key": "any"}
    model = OpenAIModel(client_args=args, model_id="m")
    return Agent(name=name, model=model, system_prompt=name, callback_handler=None, **options)


def graph(server: ModelServer, *edges: tuple[str, str], **nodes: Any) -> Any:
    """Of agents that are called like their nodes, but for those given."""
    builder = GraphBuilder().set_max_node_executions(50).set_graph_id("team")
    for name in dict.fromkeys(name for edge in edges for name in edge):
        builder.add_node(nodes.get(name) or made(server, name), name)
    for edge in edges:
        builder.add_edge(*edge)
    return builder.build()


def who(asked: Asked) -> str:
    return str(asked.body["messages"][0]["content"])


def says(asked: Asked) -> str:
    return f"{who(asked)} says."


LINE = [(f"n{n}", f"n{n + 1}") for n in range(1, 5)]


# Graphs


async def test_when_the_third_of_five_nodes_fails_nothing_that_completed_runs_again() -> None:
    down = True

    def script(asked: Asked) -> Any:
        return Reply(status=500) if down and who(asked) == "n3" else says(asked)

    with ModelServer(script) as server:
        park = holdfast.Retry(attempts=1, exhausted="park")
        team = durable(graph(server, *LINE), retry=park)
        async with holdfast.Holdfast(":memory:", workflows=[team]) as app:
            run = await app.start(team, "why")
            with pytest.raises(holdfast.RunHalted):
                await asyncio.wait_for(run.result(), 120)
            down = False
            await app.resume(run.id)
            result = await asyncio.wait_for(run.result(), 120)
        assert result == {f"n{n}": f"n{n} says." for n in range(1, 6)}
        assert [who(asked) for asked in server.requests] == ["n1", "n2", "n3", "n3", "n4", "n5"]


async def test_a_graph_whose_node_fails_for_good_raises_its_error() -> None:
    with ModelServer([Reply(status=500)]) as server:
        team = durable(graph(server, *LINE), retry=ONCE)
        assert isinstance(await cause_of(team, "why"), openai.InternalServerError)


async def test_nodes_run_at_once_and_are_read_in_the_order_in_which_they_were_added() -> None:
    met = [f"n{n}" for n in (5, 3, 1, 4, 2, 6)]
    with ModelServer(says) as server:
        team = durable(
            graph(server, *(("first", name) for name in met), *((n, "last") for n in met))
        )
        result = await result_of(team, "why")
        assert set(result) == {"first", *met, "last"}
        # Strands keeps edges in sets, whose order is another one in another process.
        prompt = server.requests[-1].prompt
        assert sorted(met, key=lambda name: prompt.index(f"From {name}:")) == met


async def test_nodes_that_take_their_time_leave_no_timers_in_the_journal() -> None:
    with ModelServer([Reply(text="slow", delay=0.4)]) as server:
        helper = made(server, "helper")
        team = durable(graph(server, ("a", "b"), b=made(server, "b", tools=[helper])))
        async with holdfast.Holdfast(":memory:", workflows=[team]) as app:
            run = await app.start(team, "why")
            await asyncio.wait_for(run.result(), 120)
            keys = [f"{entry.kind} {entry.key}" for entry in await app.history(run.id)]
        assert keys[1:] == ["step /a@0/model#0", "step /b@0/model#0", "end "]


async def test_an_interrupt_before_a_node_waits_for_its_answer() -> None:
    def ask(event: BeforeNodeCallEvent) -> None:
        if event.node_id == "b" and event.interrupt("sure") != "yes":
            event.cancel_node = "not allowed"

    with ModelServer(says) as server:
        team: Any = graph(server, ("a", "b"))
        team.add_hook(ask, BeforeNodeCallEvent)
        team = durable(team)
        async with holdfast.Holdfast(":memory:", workflows=[team]) as app:
            run = await app.start(team, "why")
            await run.resolve("sure:b", "yes", early=True)
            assert await asyncio.wait_for(run.result(), 120) == {"a": "a says.", "b": "b says."}


async def test_a_graph_inside_a_graph_is_durable_with_it() -> None:
    with ModelServer(says) as server:
        inner = graph(server, ("x", "y"))
        team = durable(graph(server, ("a", "inner"), inner=inner))
        async with holdfast.Holdfast(":memory:", workflows=[team]) as app:
            run = await app.start(team, "why")
            result = await asyncio.wait_for(run.result(), 120)
            keys = {entry.key for entry in await app.history(run.id)}
        assert result == {"a": "a says.", "inner": {"x": "x says.", "y": "y says."}}
        assert "/inner@0/y@0/model#0" in keys


def test_a_graph_is_called_in_a_def_workflow_that_builds_it() -> None:
    with ModelServer(says) as server:

        @holdfast.workflow
        def asks() -> str:
            team = durable(graph(server, ("a", "b")))
            return str(team("why").results["b"].result)

        with holdfast.Holdfast(":memory:", workflows=[asks]).sync() as door:
            assert door.start(asks).result() == "b says.\n"


async def test_a_stream_of_a_graph_has_the_events_of_its_nodes() -> None:
    with ModelServer(says) as server:
        team = durable(graph(server, ("a", "b")))

        @holdfast.workflow
        async def reads() -> Any:
            events = [event async for event in team.stream_async("why")]
            nodes = [
                event["node_id"] for event in events if event.get("type") == "multiagent_node_stop"
            ]
            return [nodes, "result" in events[-1]]

        assert await result_of(reads) == [["a", "b"], True]


# Swarms


async def test_a_swarm_that_fails_fails_its_run() -> None:
    with ModelServer([Reply(status=500)]) as server:
        team = durable(Swarm([made(server, "a")], id="desk"), retry=ONCE)
        assert isinstance(await cause_of(team, "why"), openai.InternalServerError)


async def test_swarms_of_two_runs_do_not_hear_one_another() -> None:
    def script(asked: Asked) -> Any:
        if who(asked) == "b":
            return f"told {'one' if 'one' in asked.prompt else 'two'}"
        number = "one" if "Request: one" in asked.prompt else "two"
        to = {"agent_name": "b", "message": number, "context": {"known": number}}
        return [Reply(tool_calls=[("handoff_to_agent", to)]), "on"][asked.turn]

    with ModelServer(script) as server:
        team = durable(Swarm([made(server, "a"), made(server, "b")], id="desk"))
        async with holdfast.Holdfast(":memory:", workflows=[team]) as app:
            runs = [await app.start(team, task) for task in ("one", "two")]
            told = [await asyncio.wait_for(run.result(), 120) for run in runs]
        assert [result["b"] for result in told] == ["told one", "told two"]
        assert team.shared_context.context == {}
