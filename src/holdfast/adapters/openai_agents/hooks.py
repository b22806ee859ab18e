"""What of the SDK is used here though it is not documented, or is easily changed."""

from __future__ import annotations

from typing import Any

from holdfast.adapters._hooks import Hooks

_NAMES = (
    "agents.agent:AgentBase.get_all_tools",
    "agents.items:TResponseOutputItem",
    "agents.items:TResponseStreamEvent",
    "agents.mcp.server:_MCPServerWithClientSession",
    "agents.models._retry_runtime:provider_managed_retries_disabled",
    "agents.models.interface:Model.get_response",
    "agents.models.interface:Model.stream_response",
    "agents.result:RunResult.to_state",
    "agents.result:RunResultStreaming.stream_events",
    "agents.run:AgentRunner",
    "agents.run:AgentRunner.run",
    "agents.run:AgentRunner.run_streamed",
    "agents.run:AgentRunner.run_sync",
    "agents.run:get_default_agent_runner",
    "agents.run:set_default_agent_runner",
    "agents.run_config:_coerce_run_config",
    "agents.run_internal.tool_execution:_invoke_function_tool_with_metadata",
    "agents.run_state:RunState.approve",
    "agents.run_state:RunState.reject",
    "agents.tool:_FailureHandlingFunctionToolInvoker",
    "agents.usage:_attach_normalized_usage",
    "agents.usage:_attach_raw_usage_snapshot",
    "agents.usage:_extract_raw_usage_snapshot",
    "agents.usage:_mark_requests_completed_without_usage",
    "agents.usage:_requests_for_response_without_usage",
    "agents.usage:_response_usage_to_usage",
    "agents.usage:deserialize_usage",
    "agents.usage:serialize_usage",
    "openai._models:construct_type",
)

HOOKS = Hooks("openai-agents", "0.24.0", _NAMES)

check = HOOKS.check

AgentRunner: Any = HOOKS["AgentRunner"] or object
Invoker: Any = HOOKS["_FailureHandlingFunctionToolInvoker"] or object
SessionServer: Any = HOOKS["_MCPServerWithClientSession"] or ()
OutputItem: Any = HOOKS["TResponseOutputItem"]
StreamEvent: Any = HOOKS["TResponseStreamEvent"]
attach_normalized_usage: Any = HOOKS["_attach_normalized_usage"]
attach_raw_usage: Any = HOOKS["_attach_raw_usage_snapshot"]
coerce_run_config: Any = HOOKS["_coerce_run_config"]
construct_type: Any = HOOKS["construct_type"]
deserialize_usage: Any = HOOKS["deserialize_usage"]
get_default_agent_runner: Any = HOOKS["get_default_agent_runner"]
mark_requests: Any = HOOKS["_mark_requests_completed_without_usage"]
provider_managed_retries_disabled: Any = HOOKS["provider_managed_retries_disabled"]
raw_usage: Any = HOOKS["_extract_raw_usage_snapshot"]
requests_without_usage: Any = HOOKS["_requests_for_response_without_usage"]
response_usage: Any = HOOKS["_response_usage_to_usage"]
serialize_usage: Any = HOOKS["serialize_usage"]
set_default_agent_runner: Any = HOOKS["set_default_agent_runner"]
