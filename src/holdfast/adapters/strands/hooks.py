"""What of Strands is used here though it is not documented, or is easily changed."""

from __future__ import annotations

from typing import Any

from holdfast.adapters._hooks import Hooks

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

HOOKS = Hooks("strands-agents", "1.62.0", _NAMES, of=(_MCP, _OF_MCP))

check = HOOKS.check

AgentAsTool: Any = HOOKS["_AgentAsTool"] or ()
ConcurrencyController: Any = HOOKS["_ConcurrencyController"]
HookRegistry: Any = HOOKS["HookRegistry"]
InterruptState: Any = HOOKS["_InterruptState"]
ToolInterruptEvent: Any = HOOKS["ToolInterruptEvent"] or ()
ToolResultEvent: Any = HOOKS["ToolResultEvent"] or ()
ToolStreamEvent: Any = HOOKS["ToolStreamEvent"] or ()
is_run_async_bridge: Any = HOOKS["is_run_async_bridge"]
