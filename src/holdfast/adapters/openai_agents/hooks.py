"""What of the SDK is used here though it is not documented, or is easily changed.

All of it is looked up by name, so that `durable()` can say what is missing.
"""

from __future__ import annotations

from typing import Any

from holdfast.adapters._shared import find_hooks, require_hooks

TESTED = "0.24.0"

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


FOUND = find_hooks(_NAMES)


def check() -> None:
    require_hooks("openai-agents", TESTED, FOUND)


def _named(name: str) -> Any:
    return next(found for known, found in FOUND.items() if known.endswith(f":{name}"))


AgentRunner: Any = _named("AgentRunner") or object
Invoker: Any = _named("_FailureHandlingFunctionToolInvoker") or object
SessionServer: Any = _named("_MCPServerWithClientSession") or ()
OutputItem: Any = _named("TResponseOutputItem")
StreamEvent: Any = _named("TResponseStreamEvent")
attach_normalized_usage: Any = _named("_attach_normalized_usage")
attach_raw_usage: Any = _named("_attach_raw_usage_snapshot")
coerce_run_config: Any = _named("_coerce_run_config")
construct_type: Any = _named("construct_type")
deserialize_usage: Any = _named("deserialize_usage")
get_default_agent_runner: Any = _named("get_default_agent_runner")
mark_requests: Any = _named("_mark_requests_completed_without_usage")
provider_managed_retries_disabled: Any = _named("provider_managed_retries_disabled")
raw_usage: Any = _named("_extract_raw_usage_snapshot")
requests_without_usage: Any = _named("_requests_for_response_without_usage")
response_usage: Any = _named("_response_usage_to_usage")
serialize_usage: Any = _named("serialize_usage")
set_default_agent_runner: Any = _named("set_default_agent_runner")
