"""What of the framework is used here, looked up by name, so that `durable()` can say what is
missing."""

from __future__ import annotations

from holdfast.adapters._shared import find_hooks, require_hooks

TESTED = "1.23.0"

_NAMES = (
    "agent_framework:Agent.run",
    "agent_framework:BaseAgent.create_session",
    "agent_framework:BaseChatClient._finalize_response_updates",
    "agent_framework:BaseChatClient._inner_get_response",
    "agent_framework:BaseChatClient.get_response",
    "agent_framework:Executor.execute",
    "agent_framework:Executor.on_checkpoint_restore",
    "agent_framework:Executor.on_checkpoint_save",
    "agent_framework:FunctionTool.invoke",
    "agent_framework:HistoryProvider.after_run",
    "agent_framework:HistoryProvider.before_run",
    "agent_framework:InProcRunnerContext.add_request_info_event",
    "agent_framework:InProcRunnerContext.get_pending_request_info_events",
    "agent_framework:MiddlewareFailure",
    "agent_framework:ResponseStream.with_pull_context_manager",
    "agent_framework:Workflow.run",
    "agent_framework._mcp:MCPTool._call_prompt_with_runtime_kwargs",
    "agent_framework._mcp:MCPTool._ensure_connected",
    "agent_framework._mcp:MCPTool._require_connection",
    "agent_framework._mcp:MCPTool._seed_connection_kwargs",
    "agent_framework._mcp:_mcp_tool_runtime_context",
    "agent_framework._tools:_replace_approval_contents_with_results",
)


def check() -> None:
    require_hooks("agent-framework-core", TESTED, find_hooks(_NAMES))
