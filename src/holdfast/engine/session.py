"""Sessions: keyed state and a list of messages that outlive a run, with one run at a time writing
them.

Changes are committed with the entries of the run that made them. What a run reads is remembered, so
that it reads the same on replay, although the store may be ahead by then.
"""

from __future__ import annotations

from typing import Any

from holdfast import codec
from holdfast.engine.context import Scope
from holdfast.engine.value import remembered
from holdfast.engine.wait import on_loop, required_scope
from holdfast.errors import BadValue, Suspended
from holdfast.store.base import MessageWrite, StateWrite
from holdfast.types import Kind


class Session:
    """The session of the running run, with its state as it was when the run began, and its own
    changes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._state: dict[str, Any] = {}
        self._messages: list[Any] = []

    def get(self, key: str, default: Any = None) -> Any:
        return self._state.get(key, default)

    def keys(self) -> list[str]:
        return sorted(self._state)

    @property
    def messages(self) -> list[Any]:
        return list(self._messages)

    def set(self, key: str, value: Any) -> None:
        payload = codec.encode(value, what=f"{key!r} of session {self.name!r}")
        self._write(StateWrite(self.name, key, payload))
        self._state[key] = value

    def delete(self, key: str) -> None:
        self._write(StateWrite(self.name, key, None))
        self._state.pop(key, None)

    def append(self, message: Any) -> None:
        """Adds a message to the end of the list."""
        payload = codec.encode(message, what=f"a message of session {self.name!r}")
        self._write(MessageWrite(self.name, payload))
        self._messages.append(message)

    def _write(self, change: StateWrite | MessageWrite) -> None:
        where = required_scope("a session's change")
        on_loop(where, lambda: _write(where, change))


def session() -> Session:
    """The session this run belongs to: `with_options(session="user-42")`."""
    where = required_scope("session()")
    run = where.frame.run
    name = run.row.session
    if name is None:
        raise BadValue('this run has no session: start it with_options(session="...")')
    opened: Session | None = run.session
    if opened is None:
        opened = run.session = Session(name)
        stored, messages = run.session_data
        # The state is remembered; of the messages, which are never changed, only how many there
        # were.
        state, count = remembered("session", lambda: (stored, len(messages)))
        what = f"session {name!r}"
        opened._state = {key: codec.decode(value, what=what) for key, value in state.items()}
        opened._messages = [codec.decode(payload, what=what) for payload in messages[:count]]
    return opened


def _write(where: Scope, change: StateWrite | MessageWrite) -> None:
    run = where.frame.run
    if run.closed:
        raise Suspended
    claim = where.claim("session.write")
    if run.journal.find_value(claim) is not None:
        return
    run.session_writes.append(change)
    run.note(Kind.VALUE, claim.key, position=claim.position)
