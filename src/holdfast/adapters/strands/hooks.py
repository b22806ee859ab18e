"""What of Strands is used here though it is not documented, or is easily changed.

All of it is looked up by name, so that `durable()` can say what is missing.
"""

from __future__ import annotations

import sys
from typing import Any

from holdfast.adapters._shared import find_hooks, require_hooks

TESTED = "1.62.0"

_NAMES = (
    "strands._async:is_run_async_bridge",
    "strands.agent._agent_as_tool:_AgentAsTool",
    "strands.agent._agent_as_tool:_AgentAsTool.stream",
    "strands.agent._concurrency:_ConcurrencyController",
    "strands.agent.agent:Agent._append_messages",
    "strands.agent.agent:Agent._execute_event_loop_cycle",
    "strands.agent.agent:Agent._invoke_async_and_flush",
    "strands.agent.agent:Agent._start_cancel_watcher",
    "strands.agent.agent:Agent.stream_async",
    "strands.hooks.registry:HookRegistry",
    "strands.hooks.registry:_CallbackEntry",
    "strands.interrupt:_InterruptState",
    "strands.interrupt:_InterruptState.resume",
    "strands.middleware:ExecuteToolStage",
    "strands.middleware:InvokeModelStage",
    "strands.middleware._registry:MiddlewareRegistry.invoke",
    "strands.models:Model.stream",
    "strands.multiagent.graph:Graph._execute_nodes_parallel",
    "strands.multiagent.graph:Graph._find_newly_ready_nodes",
    "strands.multiagent.graph:Graph._stream_node_to_queue",
    "strands.multiagent.swarm:Swarm._create_handoff_tool",
    "strands.multiagent.swarm:Swarm.stream_async",
    "strands.types._events:ToolInterruptEvent",
    "strands.types._events:ToolStreamEvent",
    "strands.types.events:ToolResultEvent",
)

_MCP = "strands.tools.mcp"
_OF_MCP = (
    "strands.tools.mcp.mcp_agent_tool:MCPAgentTool.stream",
    "strands.tools.mcp.mcp_client:MCPClient._handle_tool_execution_error",
    "strands.tools.mcp.mcp_client:MCPClient.start",
    "strands.tools.mcp.mcp_client:MCPClient.stop",
)


FOUND = find_hooks(_NAMES)


def check() -> None:
    of_mcp = find_hooks(_OF_MCP) if _MCP in sys.modules else {}  # to import it takes its time
    require_hooks("strands-agents", TESTED, {**FOUND, **of_mcp})


def _named(name: str) -> Any:
    return next(found for known, found in FOUND.items() if known.endswith(f":{name}"))


AgentAsTool: Any = _named("_AgentAsTool") or ()
ConcurrencyController: Any = _named("_ConcurrencyController")
HookRegistry: Any = _named("HookRegistry")
InterruptState: Any = _named("_InterruptState")
ToolInterruptEvent: Any = _named("ToolInterruptEvent") or ()
ToolResultEvent: Any = _named("ToolResultEvent") or ()
ToolStreamEvent: Any = _named("ToolStreamEvent") or ()
is_run_async_bridge: Any = _named("is_run_async_bridge")
