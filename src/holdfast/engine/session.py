"""Sessions: keyed state and a list of messages that outlive a run, with one run at a time writing
them.

Changes are committed with the entries of the run that made them. What a run reads is remembered, so
that it reads the same on replay, although the store may be ahead by then (see session_view.py).
"""

from __future__ import annotations

from typing import Any

from holdfast import codec
from holdfast.engine.context import Scope
from holdfast.engine.session_view import Change, Seen
from holdfast.engine.wait import on_loop, required_scope
from holdfast.errors import BadValue, Suspended
from holdfast.store.base import MessageWrite, StateWrite
from holdfast.text import can_be_stored


class Session:
    """The session of the running run: as it was when the run first asked for it, with the run's own
    changes and with what others wrote: a child of it that has ended, and whoever had the session
    while the run waited and had released it."""

    def __init__(self, name: str, seen: Seen) -> None:
        self.name = name
        self._seen = seen

    def get(self, key: str, default: Any = None) -> Any:
        return self._seen.state.get(self._key(key), default)

    def keys(self) -> list[str]:
        return sorted(self._seen.state)

    @property
    def messages(self) -> list[Any]:
        return [*self._seen.stored, *self._seen.own]

    def set(self, key: str, value: Any) -> None:
        key = self._key(key)
        payload = codec.encode(value, what=f"{key!r} of session {self.name!r}")
        _write(StateWrite(self.name, key, payload), value)

    def delete(self, key: str) -> None:
        _write(StateWrite(self.name, self._key(key), None), None)

    def append(self, message: Any) -> None:
        """Adds a message to the end of the list."""
        payload = codec.encode(message, what=f"a message of session {self.name!r}")
        _write(MessageWrite(self.name, payload), message)

    def _key(self, key: object) -> str:
        if can_be_stored(key):
            return str(key)
        raise BadValue(
            f"the keys of session {self.name!r} are text without lone surrogates and null "
            f"characters, not {key!r}"
        )


def session() -> Session:
    """The session this run belongs to: `with_options(session="user-42")`."""
    where = required_scope("session()")
    view = where.frame.run.session
    if view is None:
        raise BadValue('this run has no session: start it with_options(session="...")')
    frame = where.frame
    seen = on_loop(where, view.open if frame.is_root else lambda: view.look(frame))
    return Session(view.name, seen)


def _write(change: Change, value: Any) -> None:
    where = required_scope("a session's change")
    on_loop(where, lambda: _change(where, change, value))


def _change(where: Scope, change: Change, value: Any) -> None:
    run = where.frame.run
    if run.closed:
        raise Suspended
    if not where.frame.is_root:
        # Once it is recorded, a step is not executed again, and its change would be missing from
        # what the replayed body sees.
        raise BadValue(
            "a session is changed in the workflow's own body: let a step return what is to be kept"
        )
    if run.session is None or run.session.name != change.session:
        raise BadValue(f"this run does not belong to session {change.session!r}")
    run.session.change(where.claim("session.write"), change, value)
