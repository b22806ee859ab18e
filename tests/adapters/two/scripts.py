"""What the model says to the crews and flows of crewai_cases.py, and people, too."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from holdfast.testing.model_server import Asked, Reply, Script

ANSWER = "All is well.\nReally."
ALONE = [
    Reply(tool_calls=[("search", {"q": "one"})]),
    Reply(text="Let me see.", tool_calls=[("search", {"q": "two"}), ("search", {"q": "three"})]),
    Reply(text=ANSWER, chunk=4),
]


def team(asked: Asked) -> Reply:
    said = json.dumps(asked.body["messages"])
    if asked.body["model"] == "manager":
        if "Write about" in said:
            return Reply(text='{"text": "Because.", "score": 3}')
        ask = {"task": "Search it", "context": "none", "coworker": "Searcher"}
        turns = [Reply(tool_calls=[("delegate_work_to_coworker", ask)]), Reply(text="It is known.")]
        return turns[min(asked.turn, 1)]
    return [Reply(tool_calls=[("search", {"q": "it"})]), Reply(text="found")][min(asked.turn, 1)]


def pair(asked: Asked) -> Reply:
    said = json.dumps(asked.body["messages"])
    if "Sum up" in said:
        return Reply(text="both")
    side = "left" if "Look left" in said else "right"
    return [Reply(tool_calls=[("search", {"q": side})]), Reply(text=side)][min(asked.turn, 1)]


def consulted(asked: Asked) -> Reply:
    who = next(m["content"] for m in asked.body["messages"] if m["role"] == "user").split()[-1]
    said = [Reply(tool_calls=[("search", {"q": who})]), Reply(text=f"from {who}")]
    return said[min(asked.turn, 1)]


def draft(asked: Asked) -> Reply:
    said = json.dumps(asked.body["messages"])
    if "shorter" in said:
        return Reply(text="Short.")
    return [Reply(tool_calls=[("search", {"q": "it"})]), Reply(text="A long text.")][
        min(asked.turn, 1)
    ]


def planned(asked: Asked) -> Reply:
    if asked.body["model"] != "planner":
        assert "First of all, search" in json.dumps(asked.body["messages"])
        return ALONE[min(asked.turn, 2)]
    plan = {"task_number": 1, "task": "Answer: why", "plan": " First of all, search."}
    return Reply(text=json.dumps({"list_of_plans_per_task": [plan]}))


DECLINED = {"approved": False, "comment": "shorter", "by": "ada"}
APPROVED = {"approved": True, "comment": None, "by": "ada"}

ALL: dict[str, tuple[Script, dict[str, Any]]] = {
    "own_run": (ALONE, {}),
    "in_workflow": (ALONE, {}),
    "streamed": (ALONE, {}),
    "flow": (ALONE, {}),
    "each": (ALONE, {}),
    "one_by_one": (ALONE, {}),
    "planned": (planned, {}),
    "single": (ALONE, {}),
    "consulting": (consulted, {}),
    "team": (team, {}),
    "side_by_side": (pair, {}),
    "reviewed": (draft, {"draft": DECLINED, "draft#2": APPROVED}),
    "asking": (
        {"not yet": '{"outcome": "again"}'},
        {
            "write": "Bob",
            "review": {"approved": False, "comment": "not yet, please", "by": None},
            "review#2": {"approved": True, "comment": "fine", "by": None},
        },
    ),
    "racing": (["so slow"], {}),
}


def under_its_own_names(script: Sequence[Reply]) -> Callable[[Asked], Reply]:
    """CrewAI puts all that it knows of an MCP server before the names of its tools."""
    known = {"Adds two numbers.": "add", "Does not survive its first call.": "fragile"}

    def reply(asked: Asked) -> Reply:
        offered = [tool["function"] for tool in asked.body.get("tools") or ()]
        names = {
            name: one["name"]
            for one in offered
            for said, name in known.items()
            if said in one["description"]
        }
        said = script[min(asked.turn, len(script) - 1)]
        calls = [(names[name], given) for name, given in said.tool_calls]
        return replace(said, tool_calls=calls)

    return reply
