"""Strands' sessions: what a run reads of one, and adds to it, are steps.

A session is kept outside of the run. Read again on replay, it would hold what the run itself has
added, and the model would be asked something else. So it is read once, when the run first asks the
agent, and written at the end of each invocation, at places that the journal knows: written again
after a crash, it holds the same. What an invocation that fails has said is not kept.
"""

from __future__ import annotations

import asyncio
from typing import Any

from strands.agent.state import AgentState
from strands.hooks import MessageAddedEvent
from strands.session import RepositorySessionManager, SessionManager
from strands.types.session import SessionAgent, SessionMessage

import holdfast
from holdfast.adapters._shared import Place, as_step


class Session:
    """That of one agent, in one run."""

    def __init__(self, manager: Any, agent: Any) -> None:
        self._agent, self._manager = agent, manager
        self._ids = (manager.session_id, agent.agent_id)
        self._next: int | None = None  # the place of the next message; None: it is not yet read
        self._added: list[Any] = []

    def note(self, event: MessageAddedEvent) -> None:
        self._added.append(event.message)

    async def read(self, place: Place) -> None:
        if self._next is not None:
            return
        agent = self._agent
        kept = await _in_step(place, "session.read", self._read)
        self._next = kept["next"]
        agent.state = AgentState(kept["state"])
        agent._model_state = kept["model_state"]
        first = agent.conversation_manager.restore_from_session(kept["manager"]) or []
        if not agent.model.stateful:
            agent.messages = self._manager._fix_broken_tool_use(first + kept["messages"])

    def _read(self) -> Any:
        store = self._manager.session_repository
        found = store.read_agent(*self._ids)
        if found is None:
            raise holdfast.Terminal(f"the session {self._ids[0]!r} of {self._ids[1]!r} is gone")
        begins = found.conversation_manager_state.get("removed_message_count", 0)
        records = store.list_messages(*self._ids, offset=begins)
        return {
            "next": records[-1].message_id + 1 if records else begins,
            "state": found.state,
            "model_state": found._internal_state.get("model_state", {}),
            "manager": found.conversation_manager_state,
            "messages": [record.to_message() for record in records],
        }

    async def write(self, place: Place) -> None:
        assert self._next is not None
        begins, added = self._next, list(self._added)

        def work() -> None:
            store = self._manager.session_repository
            for n, message in enumerate(added):
                record = SessionMessage.from_message(message, begins + n)
                store.create_message(*self._ids, record)
            store.update_agent(self._ids[0], SessionAgent.from_agent(self._agent))

        shown = [message.get("tracking_id") for message in added]
        await _in_step(place, "session.write", work, shown=shown)
        self._next += len(added)
        self._added.clear()


def _in_step(place: Place, name: str, work: Any, shown: Any = None) -> Any:
    return place.claim(lambda: as_step(name, lambda: asyncio.to_thread(work), shown=shown))


def is_supported(manager: Any) -> bool:
    hooks = getattr(type(manager), "register_hooks", None)
    return isinstance(manager, RepositorySessionManager) and hooks is SessionManager.register_hooks


def is_of_session(callback: Any) -> bool:
    """A hook by which Strands writes the session while it goes."""
    return str(getattr(callback, "__qualname__", "")).startswith("SessionManager.register_hooks.")
