"""The store protocol's part that is about what sessions hold; it goes on in base.py."""

from __future__ import annotations

from typing import Protocol

from holdfast.clock import Micros


class SessionStore(Protocol):
    async def session_state(self, session: str) -> dict[str, bytes]: ...

    async def session_messages(self, session: str, *, after: int = 0) -> list[tuple[int, bytes]]:
        """The messages with ids above `after`, by id. Ids rise in the order in which they become
        visible: what was read once stays the beginning of the list, whoever writes beside it."""
        ...

    async def delete_session(self, session: str) -> bool:
        """Deletes a session's state and messages, all or none; False: there were none. SessionBusy
        if the session has a run that has not ended: it would go on without what it has read."""
        ...

    async def prune_sessions(self, used_before: Micros, limit: int) -> int:
        """Does the same for up to `limit` sessions whose last run ended before that time, and none
        of whose runs has not ended; says for how many. Each goes as a whole."""
        ...
