"""Says what of an agent will be journaled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.adk.agents import BaseAgent

from holdfast.adapters.google_adk import hooks
from holdfast.adapters.google_adk.options import Options


def explanation(name: str, root: Any, options: Options) -> str:
    """One line for each kind of call."""
    agents = list(agents_in(root))
    tools = [tool for agent in agents for tool in getattr(agent, "tools", ())]
    inner = [_name(tool) for tool in tools if isinstance(tool, hooks.AgentTool | hooks.NodeTool)]
    plain = [_name(tool) for tool in tools if _name(tool) not in inner]
    asked = [_name(tool) for tool in tools if getattr(tool, "_require_confirmation", False)]
    late = [_name(tool) for tool in tools if getattr(tool, "is_long_running", False)]
    lines = {
        f"runs, as workflow {name!r}": [root.name],
        "steps '<agent>.model': each call of a model by": [
            agent.name for agent in agents if hasattr(agent, "model")
        ],
        "  then, if it fails for good, of": [model.model for model in options.models],
        "steps '<tool>:<id of the call>': each call of": plain,
        "in '<tool>:<id of the call>': each call by the agents behind": inner,
        "approvals '<tool>:<id of the call>': before calls of": asked,
        "promises '<tool>:<id of the call>': after calls of": late,
        "steps 'session.<method>': what a runner reads of its session and adds to it": [name],
        "not journaled, and done again on replay": ["callbacks", "plugins", "instructions"],
    }
    return "\n".join(f"{what}: {', '.join(who)}" for what, who in lines.items() if who)


def agents_in(node: Any) -> Iterator[Any]:
    """A node, and the agents and nodes below it."""
    yield node
    if isinstance(node, BaseAgent):
        for agent in node.sub_agents:
            yield from agents_in(agent)
    elif getattr(node, "graph", None) is not None:
        for inner in node.graph.nodes:
            if inner is not node:
                yield from agents_in(inner)


def _name(tool: Any) -> str:
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", tool))
