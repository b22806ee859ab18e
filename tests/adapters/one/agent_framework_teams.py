"""Teams of agents: the orchestrations of the Microsoft Agent Framework."""

from __future__ import annotations

import json
from typing import Any

from agent_framework import Agent, AgentResponseUpdate, WorkflowBuilder, tool
from agent_framework_orchestrations import (
    ConcurrentBuilder,
    GroupChatBuilder,
    HandoffBuilder,
    MagenticBuilder,
    SequentialBuilder,
)

import holdfast
from holdfast.adapters.agent_framework import durable
from holdfast.testing.model_server import Asked, Reply
from tests.adapters.one.agent_framework_cases import agent_of, client_of
from tests.adapters.world import World


def magentic(world: World) -> tuple[Any, list[Any]]:
    """Its plan is reviewed, revised and reviewed again; then an agent is asked."""
    builder = MagenticBuilder(
        participants=[agent_of(world, description="finds things")],
        manager_agent=Agent(client_of(world), name="manager"),
        enable_plan_review=True,
        name="magentic",
    )
    return durable(builder.build()), ["owls"]


def plays_magentic(asked: Asked) -> Reply:
    prompt, said = asked.prompt, json.dumps(asked.body)
    if "Is the request fully satisfied" in prompt:
        is_done = "Owls hunt at night." in said
        ledger = {
            "is_request_satisfied": is_done,
            "is_in_loop": False,
            "is_progress_being_made": True,
            "next_speaker": "researcher",
            "instruction_or_question": "search for owls",
        }
        told = {name: {"reason": "so", "answer": answer} for name, answer in ledger.items()}
        return Reply(text=json.dumps(told))
    for part, text in {
        "pre-survey": "Facts.",
        "Fantastic": "Plan.",
        "old fact sheet": "Facts again.",
        "root cause": "Better plan.",
        "provide the final answer": "They hunt at night.",
    }.items():
        if part in prompt:
            return Reply(text=text)
    if not any(message["role"] == "tool" for message in asked.body["messages"]):
        return Reply(tool_calls=[("search", {"q": "owls"})])
    return Reply(text="Owls hunt at night.")


# The others


def handoff(world: World) -> tuple[Any, list[Any]]:
    agents: list[Any] = [
        Agent(
            client_of(world),
            name=name,
            instructions=f"You are {name}.",
            require_per_service_call_history_persistence=True,
        )
        for name in ("triage", "refunds")
    ]
    builder = HandoffBuilder(
        name="handoff",
        participants=agents,
        termination_condition=lambda said: "bye" in said[-1].text,
    ).with_start_agent(agents[0])
    team = durable(builder.build())

    @holdfast.workflow
    async def hands_off(question: str) -> list[str]:
        result = await team.run(question)
        return [one.data.text for one in result if one.type == "output" and one.data.text]

    return hands_off, ["refund me"]


def plays_handoff(asked: Asked) -> Reply:
    system = asked.body["messages"][0]["content"]
    if "triage" in str(system):
        return Reply(tool_calls=[("handoff_to_refunds", {})])
    return Reply(text="Refunded, bye." if "order 7" in asked.prompt else "Which order?")


def sequential(world: World) -> tuple[Any, list[Any]]:
    """Agents one after the other, with a stream of what they say."""
    agents = [agent_of(world, "first"), agent_of(world, "second")]
    team = durable(
        SequentialBuilder(participants=agents, output_from="all").build(), name="sequence"
    )

    @holdfast.workflow
    async def goes(question: str) -> list[str]:
        seen: list[str] = []
        async for event in team.run(question, stream=True):
            if event.type == "output" and isinstance(event.data, AgentResponseUpdate):
                seen += [event.data.text] if event.data.text else []
            elif event.type in ("executor_invoked", "executor_completed"):
                seen.append(f"{event.type[9:]} {event.executor_id}")
        return seen

    return goes, ["owls"]


def plays_sequential(asked: Asked) -> Reply:
    last = asked.body["messages"][-1]
    if last["role"] != "tool":
        return Reply(tool_calls=[("search", {"q": f"{len(asked.body['messages'])}"})])
    return Reply(text="One.\nTwo.")


def concurrent(world: World) -> tuple[Any, list[Any]]:
    agents = [Agent(client_of(world), name=name) for name in ("left", "right")]
    return durable(ConcurrentBuilder(participants=agents).build(), name="concurrent"), ["owls"]


def group_chat(world: World) -> tuple[Any, list[Any]]:
    agents = [agent_of(world, "first"), agent_of(world, "second")]
    builder = GroupChatBuilder(
        participants=agents,
        selection_func=lambda state: ["first", "second"][state.current_round % 2],
        max_rounds=2,
    )
    return durable(builder.build(), name="chat"), ["owls"]


def approves(world: World) -> tuple[Any, list[Any]]:
    """An agent in a workflow, whose calls need approval."""

    @tool(approval_mode="always_require")
    async def delete(path: str) -> str:
        """Deletes."""
        world.effect(f"delete {path}")
        return f"deleted {path}"

    agent = agent_of(world, tools=[delete])
    return durable(WorkflowBuilder(name="approves", start_executor=agent).build()), ["clean up"]
