"""Says what of an agent will be journaled."""

from __future__ import annotations

from typing import Any

from agents import Agent, FunctionTool

from holdfast.adapters.openai_agents.options import Options


def explanation(name: str, reached: list[Agent[Any]], options: Options) -> str:
    """One line for each kind of call. `reached`: the agent and those that it hands off to."""
    tools: dict[str, Any] = {tool.name: tool for agent in reached for tool in agent.tools}
    own = {name: tool for name, tool in tools.items() if isinstance(tool, FunctionTool)}
    inner = [name for name, tool in own.items() if tool._is_agent_tool]
    plain = [name for name, tool in own.items() if not tool._is_agent_tool]
    asked = [name for name, tool in tools.items() if getattr(tool, "needs_approval", False)]
    servers = [server.name for agent in reached for server in agent.mcp_servers]
    turned_to = [str(getattr(model, "model", model)) for model in options.models]
    lines = {
        f"runs, as workflow {name!r}": [reached[0].name],
        "steps 'model': each call of a model by": [agent.name for agent in reached],
        "  then, if it fails for good, of": turned_to,
        "steps '<id of the call>/<tool>': each call of": plain,
        "  and of the tools of MCP servers": servers,
        "in '<tool>:<id of the call>': each call by the agents behind": inner,
        "approvals '<tool>:<id of the call>': before calls of": asked,
        "not journaled, and done again on replay": [
            "guardrails",
            "hooks",
            "instructions",
            "handoff callbacks",
        ],
    }
    return "\n".join(f"{what}: {', '.join(who)}" for what, who in lines.items() if who)
