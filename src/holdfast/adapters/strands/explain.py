"""Says what of an agent, graph or swarm will be journaled."""

from __future__ import annotations

from typing import Any

from strands import Agent

from holdfast.adapters.strands import hooks
from holdfast.adapters.strands.model import name_of
from holdfast.adapters.strands.options import Options
from holdfast.adapters.strands.tools import only_steers


def explanation(name: str | None, reached: list[Any], options: Options) -> str:
    """One line for each kind of call. `reached`: the agent or team, and all agents in it."""
    agents = [one for one in reached if isinstance(one, Agent)]
    tools = {n: tool for one in agents for n, tool in one.tool_registry.registry.items()}
    inner = [n for n, tool in tools.items() if isinstance(tool, hooks.AgentAsTool)]
    steered = [n for n, tool in tools.items() if only_steers(tool)]
    plain = [n for n in tools if n not in inner and n not in steered]
    teams = [one.id for one in reached if not isinstance(one, Agent)]
    lines = {
        "runs, as workflow": [repr(name)] if name else [],
        "in '<node>': each call by the nodes of": teams,
        "steps 'model': each call of a model by": [one.name for one in agents],
        "  then, if it fails for good, of": [name_of(model) for model in options.models],
        "steps '<tool>:<id of the call>': each call of": plain,
        "in '<tool>:<id of the call>': each call by the agents behind": inner,
        "promises '<interrupt>:<id of the call>'": ["interrupts"] if options.approvals else [],
        "not journaled, and done again on replay": [
            *steered,
            "hooks",
            "middleware",
            "edge conditions",
            "callback handlers",
        ],
    }
    return "\n".join(f"{what}: {', '.join(who)}" for what, who in lines.items() if who)
