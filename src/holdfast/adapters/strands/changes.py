"""What a tool changes beside its result: the agent's state and messages, the state of the
invocation, a wish to stop, and what other agents have said that it ran.

It is journaled with the tool's result and made again when that is replayed. Not kept: values of the
invocation's state that are not plain data.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
from collections.abc import Iterator
from typing import Any

from strands.agent.state import AgentState

import holdfast
from holdfast.adapters.strands.own import base_of, seen_in_run

_LEVELS_MAX = 20
_PENDING = "holdfast.strands.pending"
# Strands' own, in what it hands to tools.
_NOT_THE_USERS = ("agent", "model", "messages", "system_prompt", "tool_config")

Found = dict[str, Any]


class Changes:
    """Around one call of a tool."""

    def __init__(self, agent: Any, invocation_state: dict[str, Any]) -> None:
        self._agent, self._invocation = agent, invocation_state
        self._writes: list[Any] = []
        self._others: list[Any] = []
        self._before: Found | None = None  # the first try's, of several

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        agent = self._agent
        if self._before is None:
            self._before = {
                "messages": list(agent.messages),
                "invocation": copy.deepcopy(_plain_items(self._invocation)),
                "stop": [agent._deferred_cancel, agent._cancel_message],
            }
        token = _noting.set((*_noting.get(), self))
        try:
            yield
        finally:
            _noting.reset(token)

    def note(self, agent: Any, write: list[Any] | None) -> None:
        if agent is not self._agent:
            if agent not in self._others:
                self._others.append(agent)
        elif write is not None:
            self._writes.append(write)

    def found(self) -> Found:
        """JSON-ready; called in the step."""
        agent, before = self._agent, self._before or {}
        after = _plain_items(self._invocation)
        stop = [agent._deferred_cancel, agent._cancel_message]
        known = before.get("invocation", {})
        changed = {name: value for name, value in after.items() if known.get(name) != value}
        found = {
            "writes": self._writes,
            "messages": agent.messages if agent.messages != before.get("messages") else None,
            "stop": stop if stop != before.get("stop") else None,
            "invocation": changed,
            "agents": {_key(other): snapshot(other) for other in self._others},
        }
        return {name: value for name, value in found.items() if value}

    def make_again(self, found: Found) -> None:
        if self._before is not None:
            return  # it was executed just now
        agent = self._agent
        for what, *given in found.get("writes", ()):
            getattr(agent.state, what)(*given)
        if "messages" in found:
            agent.messages = found["messages"]
        if "stop" in found:
            agent._deferred_cancel, agent._cancel_message = found["stop"]
        self._invocation.update(found.get("invocation", {}))
        for key, kept in found.get("agents", {}).items():
            _restore(key, kept)


_noting: contextvars.ContextVar[tuple[Changes, ...]] = contextvars.ContextVar(
    "holdfast_strands_noting", default=()
)


def note(agent: Any, write: list[Any] | None = None) -> None:
    """Says to the tools that are running that this agent changes."""
    for changes in _noting.get():
        changes.note(agent, write)


class RunState(AgentState):
    """An agent's state that tells which tool writes to it."""

    def __init__(self, agent: Any, initial: dict[str, Any]) -> None:
        super().__init__(initial)
        self.__dict__["_holdfast_agent"] = agent

    def set(self, key: str, value: Any) -> None:
        super().set(key, value)
        note(self.__dict__["_holdfast_agent"], ["set", key, copy.deepcopy(value)])

    def delete(self, key: str) -> None:
        super().delete(key)
        note(self.__dict__["_holdfast_agent"], ["delete", key])

    def __deepcopy__(self, memo: Any) -> AgentState:
        return AgentState(self.get())


# Other agents


def snapshot(agent: Any) -> Found:
    """What an agent remembers between its invocations."""
    metrics = agent.event_loop_metrics
    return {
        "messages": agent.messages,
        "state": agent.state.get(),
        "manager": agent.conversation_manager.get_state(),
        "model_state": agent._model_state,
        "usage": metrics.accumulated_usage,
    }


def load(agent: Any, kept: Found) -> None:
    agent.messages = kept["messages"]
    agent.state = AgentState(kept["state"])
    agent.conversation_manager.restore_from_session(kept["manager"])
    agent._model_state = kept["model_state"]
    agent.event_loop_metrics.accumulated_usage.update(kept["usage"])


def _key(agent: Any) -> str:
    """How it is found again; agents that tools run have names of their own."""
    base = base_of(agent)
    return f"{base.get('name')}/{base.get('agent_id')}"


def _restore(key: str, kept: Found) -> None:
    known = [one for one in seen_in_run() if hasattr(one, "agent_id") and _key(one) == key]
    for agent in known:
        load(agent, kept)
    if not known:
        holdfast.scratch().setdefault(_PENDING, {})[key] = kept


def pending(agent: Any) -> Found | None:
    found: Found | None = holdfast.scratch().get(_PENDING, {}).pop(_key(agent), None)
    return found


def _plain_items(given: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in given.items()
        if name not in _NOT_THE_USERS and isinstance(name, str) and is_plain(value)
    }


def is_plain(value: Any, levels: int = _LEVELS_MAX) -> bool:
    if value is None or isinstance(value, str | int | float | bool | bytes):
        return True
    if not levels:
        return False
    if isinstance(value, dict):
        return all(isinstance(k, str) and is_plain(v, levels - 1) for k, v in value.items())
    return isinstance(value, list) and all(is_plain(item, levels - 1) for item in value)
