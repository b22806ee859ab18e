"""Sessions: keyed state and a list of messages that outlive a run, with one run at a time writing
them.

Changes are committed with the entries of the run that made them. What a run reads is remembered, so
that it reads the same on replay, although the store may be ahead by then.
"""

from __future__ import annotations

from typing import Any

from holdfast import codec
from holdfast.engine.context import Claim, Scope
from holdfast.engine.execution import Execution
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
        opened = on_loop(where, lambda: _open(run, name))
    return opened


def _open(run: Execution, name: str) -> Session:
    """The state is remembered; of the messages, which are never changed, only how many there were.

    Under a key of the run's own: a step that asked for the session may not be executed again.
    """
    what = f"session {name!r}"
    stored, messages = run.session_data
    entry = run.journal.find_value(Claim(Scope(run.root, ""), "/session", "session", 0))
    if entry is None:
        output = codec.encode((stored, len(messages)), what=what)
        entry = run.note(Kind.VALUE, "/session", output=output)
    state, count = codec.decode(entry.output or b"null", what=what)
    opened = run.session = Session(name)
    opened._state = {key: codec.decode(value, what=what) for key, value in state.items()}
    opened._messages = [codec.decode(payload, what=what) for payload in messages[:count]]
    return opened


def _write(where: Scope, change: StateWrite | MessageWrite) -> None:
    run = where.frame.run
    if run.closed:
        raise Suspended
    if not where.frame.is_root:
        # Once it is recorded, a step is not executed again, and its change would be missing from
        # what the replayed body sees.
        raise BadValue(
            "a session is changed in the workflow's own body: let a step return what is to be kept"
        )
    claim = where.claim("session.write")
    if run.journal.find_value(claim) is None:
        entry = run.note(Kind.STATE, claim.key, position=claim.position)
        run.session_writes.append((entry, change))
