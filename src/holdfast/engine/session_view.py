"""What a run sees of its session, and when that changes.

A run reads its session when it is claimed, because others may have had the session meanwhile, and
again each time a child of it has ended: a child may share the session and have written to it. The
workflow's body sees what was read at journaled places only, so that it sees the same on replay:
when it first asks for the session, and at the first completion after a further reading. The note of
the latter is the entry right before the completion; a crash may part the two, and then the note
counts for nothing.

Messages are never changed, so of them only their number is noted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import codec
from holdfast.engine.context import Claim, enclosing_step
from holdfast.engine.preview import after, read_in
from holdfast.errors import StoreError, Suspended
from holdfast.store.base import MessageWrite, StateWrite, Store
from holdfast.types import COMPLETIONS, Entry, Kind

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution
    from holdfast.engine.frame import Frame

Change = StateWrite | MessageWrite

OPENED = "/session"
READINGS_MAX = 20
"""How often a session is read again because its own run changed it meanwhile."""


class Seen:
    """A session's state and messages, encoded: whoever asks for a value gets one of its own, so
    that changing it in place changes nothing else."""

    def __init__(self, state: dict[str, bytes], stored: list[bytes]) -> None:
        self.state = state
        self.stored = stored  # the messages that were read from the store
        self.own: list[bytes] = []  # and those that the run has added since


class SessionView:
    def __init__(self, run: Execution, name: str) -> None:
        self.name = name
        self.unsent: list[tuple[Entry, Change]] = []  # the run's own changes, each with its entry
        self.seen: Seen | None = None  # None: the body has not asked yet
        self.has_news = False  # the store's data was read again, and the body has not seen it
        self._run = run
        self._what = f"session {name!r}"
        # What the store holds once everything that the run has sequenced is written.
        self._state: dict[str, bytes] = {}
        self._messages: list[bytes] = []
        self._own: list[bytes] = []  # messages of the run since the last reading
        self._later: list[Change] = []  # made of pieces of a step that has not ended
        self._newest = 0  # the id of the last of `_messages`
        self._changed_at = 0  # the sequence number of the run's last change

    # Reading the store

    async def read(self, store: Store) -> None:
        """Reads the session, with every change of the run's own in it. The body sees it later."""
        for _ in range(READINGS_MAX):
            if self._run.closed:
                return
            before = self._changed_at
            try:
                await self._run.barrier(before)
            except Suspended:
                return
            state = await store.session_state(self.name)
            messages = await store.session_messages(self.name, after=self._newest)
            if self._changed_at != before:
                continue  # whether that is in what was read cannot be known
            self._state, self._own = state, []
            self._messages += [payload for _, payload in messages]
            for change in self._later:
                self._apply(change)
            if messages:
                self._newest = messages[-1][0]
            self.has_news = True
            return
        raise StoreError(f"{self._what} changes faster than it can be read; trying again")

    def look(self, frame: Frame) -> Seen:
        """For the body of a step, which may be entered again: what the workflow's body sees, and
        from the first completion in the step on what was read last."""
        if self.seen is not None and not (self.has_news and self._has_moved(frame)):
            return self.seen
        return Seen(dict(self._state), [*self._messages, *self._own])

    def _has_moved(self, frame: Frame) -> bool:
        """Has anything been delivered to the body of this step, or of one around it?"""
        log = self._run.journal.logs.get(frame.key)
        if log is not None and len(log.completions) > len(frame.order or ()):
            return True
        return frame.outer is not None and bool(frame.outer.key) and self._has_moved(frame.outer)

    # What the body sees

    def open(self) -> Seen:
        if self.seen is None:
            entry = self._run.journal.logs[""].values.get(OPENED)
            if entry is None:
                self.has_news = False
                entry = self._note(OPENED, (self._state, len(self._messages)))
            state, count = codec.decode(entry.output or b"null", what=self._what)
            self.seen = Seen(dict(state), self._messages[:count])
        return self.seen

    def _note(self, key: str, value: object) -> Entry:
        return self._run.note(Kind.VALUE, key, output=codec.encode(value, what=self._what))

    def show_news(self, entry: Entry) -> None:
        """An entry is about to be journaled: if it is a completion of the body's, the body sees
        what was read last from then on."""
        if entry.kind not in COMPLETIONS or enclosing_step(entry.key):
            return
        self.has_news = False
        if self.seen is None and OPENED not in self._run.journal.logs[""].values:
            return  # it has never asked
        seen = self.open()
        news, count, own = self._news(seen), len(self._messages), len(self._own)
        if news or count + own > len(seen.stored) + len(seen.own):
            self._note(OPENED + entry.key, (news, count, own))
            self._show(seen, news, count, own)

    def _news(self, seen: Seen) -> dict[str, bytes | None]:
        """What has changed in the state; None: it is gone."""
        news: dict[str, bytes | None] = {
            key: value for key, value in self._state.items() if seen.state.get(key) != value
        }
        news.update((key, None) for key in seen.state if key not in self._state)
        return news

    def replay(self, completion: Entry) -> None:
        """The same, as it was recorded."""
        noted = self._run.journal.logs[""].values.get(OPENED + completion.key)
        if noted is not None and noted.seq == completion.seq - 1:
            self._show(self.open(), *codec.decode(noted.output or b"null", what=self._what))

    def _show(self, seen: Seen, news: dict[str, bytes | None], count: int, own: int) -> None:
        """`count` messages are the store's by now, and the last `own` of the run's follow them."""
        for key, value in news.items():
            if value is None:
                seen.state.pop(key, None)
            else:
                seen.state[key] = value
        seen.stored += self._messages[len(seen.stored) : count]
        seen.own = seen.own[len(seen.own) - own :]

    def turn_page(self) -> None:
        """A snapshot was taken, and the journal before it is forgotten: what the body sees is noted
        anew."""
        seen = self.seen
        if seen is None:
            return
        if self.has_news:
            self.has_news = False
            self._show(seen, self._news(seen), len(self._messages), len(self._own))
        seen.stored += seen.own
        seen.own = []
        self._note(OPENED, (seen.state, len(seen.stored)))

    # Changes of the run's own

    def change(self, claim: Claim, change: Change) -> None:
        """Journals a change, unless it is on record, and shows it to the body."""
        seen = self.open()
        if self._run.journal.find_value(claim) is None:
            self._apply(change)
            previews = read_in(claim.scope)
            if previews:
                self._later.append(change)
            after(previews, lambda error: self._journal(claim, change, error))
        if isinstance(change, MessageWrite):
            seen.own.append(change.payload)
        elif change.value is None:
            seen.state.pop(change.key, None)
        else:
            seen.state[change.key] = change.value

    def _journal(self, claim: Claim, change: Change, error: BaseException | None) -> None:
        if change in self._later:
            self._later.remove(change)
        if self._run.closed or error is not None:
            return
        entry = self._run.note(Kind.STATE, claim.key, position=claim.position)
        self._changed_at = entry.seq
        self.unsent.append((entry, change))

    def _apply(self, change: Change) -> None:
        if isinstance(change, MessageWrite):
            self._own.append(change.payload)
        elif change.value is None:
            self._state.pop(change.key, None)
        else:
            self._state[change.key] = change.value

    def take(self, last: int) -> list[Change]:
        """What goes down with the entries up to `last`: each change with its own entry."""
        taken = [change for entry, change in self.unsent if entry.seq <= last]
        del self.unsent[: len(taken)]
        return taken
