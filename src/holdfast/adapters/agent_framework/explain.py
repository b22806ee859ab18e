"""Says what of an agent or a workflow will be journaled."""

from __future__ import annotations

from typing import Any

from agent_framework import Agent, Workflow, WorkflowExecutor, normalize_tools

from holdfast.adapters.agent_framework.active import Options


def explanation(name: str, found: Agent[Any] | Workflow, options: Options) -> str:
    """One line for each kind of call."""
    executors = _executors(found) if isinstance(found, Workflow) else {}
    agents = [found] if isinstance(found, Agent) else [
        one.agent for one in executors.values() if isinstance(getattr(one, "agent", None), Agent)
    ]  # fmt: skip
    tools = {tool.name: tool for agent in agents for tool in _tools(agent)}
    asked = [one for one, tool in tools.items() if tool.approval_mode == "always_require"]
    lines = {
        f"runs, as workflow {name!r}": [found.name or name],
        "steps '<executor>': each message to": list(executors),
        "steps '<agent>.model': each call of a model by": [one.name or "agent" for one in agents],
        "  then, if it fails for good, of": [
            one if isinstance(one, str) else type(one).__name__ for one in options.models
        ],
        "steps '<agent>.<tool>:<id of the call>': each call of": list(tools),
        "  and of the tools of MCP servers": [
            server.name for agent in agents for server in agent.mcp_tools
        ],
        "approvals '<tool>:<id of the call>': before calls of": asked if options.approvals else [],
        "promises '<executor>:<number>': each request for information": (
            ["answered by app.resolve"] if executors and options.approvals else []
        ),
        "not journaled, and done again on replay": [
            "middleware",
            "context providers",
            *(["conditions of edges"] if executors else []),
        ],
    }
    return "\n".join(f"{what}: {', '.join(who)}" for what, who in lines.items() if who)


def _tools(agent: Agent[Any]) -> list[Any]:
    own = normalize_tools(agent.default_options.get("tools") or [])
    servers = [tool for server in agent.mcp_tools for tool in server.functions]
    return [tool for tool in (*own, *servers) if hasattr(tool, "approval_mode")]


def _executors(workflow: Workflow) -> dict[str, Any]:
    """Those that are steps."""
    found: dict[str, Any] = {}
    for name, executor in workflow.executors.items():
        if isinstance(executor, WorkflowExecutor):
            found |= {f"{name}/{n}": one for n, one in _executors(executor.workflow).items()}
        else:
            found[name] = executor
    return found
