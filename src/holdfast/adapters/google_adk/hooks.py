"""What of ADK is used here though it is not documented, or is easily changed.

ADK has no registry of runners, flows or tools: each place that calls a model, a tool or a node is
wrapped once, and what wraps it does nothing outside of durable agents in runs.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from holdfast.adapters._hooks import Hooks

SUMMARIZER = "google.adk.apps.llm_event_summarizer:LlmEventSummarizer"
EXCHANGER = "google.adk.auth.exchanger.oauth2_credential_exchanger"

_NAMES = (
    "google.adk.agents.context:Context.actions",
    "google.adk.agents.context:Context.event_author",
    "google.adk.agents.context:Context.output",
    "google.adk.agents.context:Context.route",
    "google.adk.agents.context:Context.run_node",
    "google.adk.auth.auth_handler:AuthHandler.generate_auth_request",
    f"{SUMMARIZER}.maybe_summarize_events",
    f"{EXCHANGER}:OAuth2CredentialExchanger.exchange",
    "google.adk.flows.llm_flows.base_llm_flow:BaseLlmFlow._get_llm",
    "google.adk.flows.llm_flows.tools._caller:_call_tool_async",
    "google.adk.flows.llm_flows.tools._caller:apply_confirmation_gate",
    "google.adk.platform.time:set_time_provider",
    "google.adk.platform.uuid:set_id_provider",
    "google.adk.plugins._reflect_retry_utils:ScopedFailureTracker",
    "google.adk.runners:Runner._get_or_create_session",
    "google.adk.runners:Runner.run",
    "google.adk.runners:Runner.run_async",
    "google.adk.runners:Runner.run_live",
    "google.adk.sessions:BaseSessionService.append_event",
    "google.adk.tools.agent_tool:AgentTool",
    "google.adk.tools._node_tool:NodeTool",
    "google.adk.utils._sync_runner:_invoke_callable",
    "google.adk.workflow._function_node:FunctionNode._run_impl",
    "google.adk.workflow._tool_node:_ToolNode._run_impl",
)

_MCP = "google.adk.tools.mcp_tool"
_OF_MCP = (
    f"{_MCP}.mcp_session_manager:MCPSessionManager.close",
    f"{_MCP}.mcp_session_manager:MCPSessionManager.create_session",
    f"{_MCP}.mcp_tool:McpTool._run_async_impl",
    f"{_MCP}.mcp_toolset:McpToolset._execute_with_session",
    f"{_MCP}.mcp_toolset:McpToolset.get_tools_with_prefix",
)

HOOKS = Hooks("google-adk", "2.13.0", _NAMES, of=(_MCP, _OF_MCP))

check = HOOKS.check

AgentTool: Any = HOOKS["AgentTool"] or object
ScopedFailureTracker: Any = HOOKS["ScopedFailureTracker"] or ()
NodeTool: Any = HOOKS["NodeTool"] or object
invoke_callable: Any = HOOKS["_invoke_callable"]
set_id_provider: Any = HOOKS["set_id_provider"]
set_time_provider: Any = HOOKS["set_time_provider"]


def wrap(name: str, around: Callable[[Any], Any]) -> None:
    """Puts what `around` makes of a function in its place, once."""
    module, _, path = name.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, last = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    before = getattr(owner, last)
    if not hasattr(before, "__holdfast_before__"):
        made: Any = functools.wraps(before)(around(before))
        made.__holdfast_before__ = before
        setattr(owner, last, made)
