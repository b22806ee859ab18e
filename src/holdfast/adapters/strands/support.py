"""What of an agent a run cannot journal is refused when it is made durable, with a cure."""

from __future__ import annotations

import sys
from typing import Any

from strands.agent.conversation_manager import SummarizingConversationManager

import holdfast
from holdfast.adapters.strands.model import require_model
from holdfast.adapters.strands.sessions import is_supported

_PLUGINS = (
    (
        "strands.vended_plugins.steering.handlers.llm.llm_handler",
        "LLMSteeringHandler",
        "which asks its model where a run cannot journal it: derive a SteeringHandler that awaits "
        "a durable agent's invoke_async",
    ),
    (
        "strands.vended_plugins.goal.plugin",
        "GoalLoop",
        "which remembers its attempts for all runs of the process: ask a durable judge in a "
        "workflow of yours, and the agent again",
    ),
    (
        "strands.vended_plugins.context_offloader.plugin",
        "ContextOffloader",
        "which gives what it stores another name on each replay: let the tool store what is too "
        "long, and return where",
    ),
)


def require_supported(agent: Any) -> None:
    require_model(agent.model)
    for why in (
        _tasks(agent), _session(agent), _conversation(agent), _memory(agent), _plugins(agent),
    ):  # fmt: skip
        if why:
            raise holdfast.Unsupported(f"{agent.name!r} has {why}")


def _tasks(agent: Any) -> str:
    if getattr(agent, "_background_tasks", None) is not None:
        return (
            "background_tasks, which outlive the calls that a run journals: start a run of its own "
            "instead, by holdfast.start"
        )
    if getattr(agent, "_checkpointing", False):
        return (
            "checkpointing=True, which ends it after each turn: leave it out, because in a run the "
            "journal says where it is"
        )
    return ""


def _session(agent: Any) -> str:
    manager = getattr(agent, "_session_manager", None)
    if manager is None or is_supported(manager):
        return ""
    return (
        f"a session_manager of {type(manager).__name__}, which would store everything again on "
        "replay: use a RepositorySessionManager, such as that of files or S3, or keep the "
        "conversation in holdfast.session()"
    )


def _conversation(agent: Any) -> str:
    if getattr(agent, "_context_manager", None) is not None:
        return (
            "a context_manager, which keeps for the whole process what it takes out of a "
            "conversation: use a SummarizingConversationManager, or durable(..., on_overflow=...)"
        )
    manager = agent.conversation_manager
    asks = isinstance(manager, SummarizingConversationManager)
    if asks and getattr(manager, "_compression_threshold", None) is not None:
        return (
            "proactive_compression in its SummarizingConversationManager, which asks a model where "
            "a run cannot journal it: leave it out, and what is too long is shortened all the same"
        )
    return ""


def _memory(agent: Any) -> str:
    """Its tools are steps as others are."""
    memory = getattr(agent, "memory_manager", None)
    if memory is None:
        return ""
    if memory._injection_config is not False:
        return (
            "a memory_manager that looks things up before each call of a model, where a run cannot "
            "journal what it finds: MemoryManager(..., injection=False), and the model uses the "
            "tool for it"
        )
    if memory._extraction_stores or not (memory._add_tool_config or {}).get(
        "wait_for_writes", True
    ):
        return (
            "a memory_manager that writes while others go on, and would write again on replay: use "
            "stores without extraction, and add_tool_config with wait_for_writes"
        )
    return ""


def _plugins(agent: Any) -> str:
    """Those of Strands that go wrong in runs."""
    plugins = agent._plugin_registry._plugins.values()
    for module, name, why in _PLUGINS:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and any(isinstance(one, kind) for one in plugins):
            return f"a plugin {name}, {why}"
    return ""
