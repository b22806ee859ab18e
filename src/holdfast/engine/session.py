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
from holdfast.text import A_NAME, can_be_a_name


class Session:
    """The session of the running run: as it was when the run first asked for it, with the run's own
    changes and with what others wrote: a child of it that has ended, and whoever had the session
    while the run waited and had released it, or had ended and was then run again. The latter is
    seen from the first thing on that the run hears anew (a step's result, an answer), and not
    before: a run that was run again and sets a key before that, sets what it makes of the old."""

    def __init__(self, name: str, seen: Seen) -> None:
        self.name = name
        self._seen = seen
        self._what_message = f"a message of session {name!r}"

    def get(self, key: str, default: Any = None) -> Any:
        """What is kept under this key: a copy, which only `set` puts back."""
        payload = self._seen.state.get(self._key(key))
        return default if payload is None else codec.decode(payload, what=self._what(key))

    def keys(self) -> list[str]:
        return sorted(self._seen.state)

    @property
    def messages(self) -> list[Any]:
        """All messages, each a copy. Decoding many takes a while: keep the list if you need it
        twice."""
        found = [*self._seen.stored, *self._seen.own]
        return [codec.decode(one, what=self._what_message) for one in found]

    def set(self, key: str, value: Any) -> None:
        key = self._key(key)
        _write(StateWrite(self.name, key, codec.encode(value, what=self._what(key))))

    def delete(self, key: str) -> None:
        _write(StateWrite(self.name, self._key(key), None))

    def append(self, message: Any) -> None:
        """Adds a message to the end of the list."""
        _write(MessageWrite(self.name, codec.encode(message, what=self._what_message)))

    def _what(self, key: str) -> str:
        return f"{key!r} of session {self.name!r}"

    def _key(self, key: object) -> str:
        if can_be_a_name(key):
            return str(key)
        raise BadValue(f"a key of session {self.name!r} is {A_NAME}, not {key!r}")


def session() -> Session:
    """The session this run belongs to: `with_options(session="user-42")`."""
    where = required_scope("session()")
    if where.frame.run.closed:
        raise Suspended
    view = where.frame.run.session
    if view is None:
        raise BadValue('this run has no session: start it with_options(session="...")')
    frame = where.frame
    seen = on_loop(where, view.open if frame.is_root else lambda: view.look(frame))
    return Session(view.name, seen)


def _write(change: Change) -> None:
    where = required_scope("a session's change")
    on_loop(where, lambda: _change(where, change))


def _change(where: Scope, change: Change) -> None:
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
    run.session.change(where.claim("session.write"), change)
