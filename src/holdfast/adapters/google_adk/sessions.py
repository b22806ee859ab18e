"""ADK's sessions: what a run reads of a conversation, and adds to it, are steps.

A session is kept outside of the run. Read again on replay, it would hold what the run itself has
added, and the model would be asked something else. So ADK works on a session as the journal has it,
and what it adds goes to the user's own service, each event once: one that was added when the
process died, before that was on record, is found there by its id.

Sessions in memory are lost with their process. They are not worth a step for each event: they are
made again on replay, if they are not there.
"""

from __future__ import annotations

import json
from typing import Any

from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse

import holdfast
from holdfast.adapters._shared import as_step
from holdfast.adapters.google_adk.ids import Times
from holdfast.adapters.google_adk.options import Active, claim

_RECENT = 50
"""How far back an event is looked for that may have been added already."""


class DurableSessions(BaseSessionService):
    """The service of a runner, for one call of it."""

    def __init__(self, inner: BaseSessionService, now: Active, times: Times) -> None:
        self._inner, self._now, self._times = inner, now, times
        self._is_in_memory = type(inner) is InMemorySessionService

    # Read at the beginning of a call

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        found = await self._read(
            "session.get_session",
            lambda: self._inner.get_session(
                app_name=app_name, user_id=user_id, session_id=session_id, config=config
            ),
        )
        if found is not None:
            self._remember(found)
        return found

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        async def create() -> Session:
            if session_id is not None:  # a process that died may have made it
                known = await self._inner.get_session(
                    app_name=app_name, user_id=user_id, session_id=session_id
                )
                if known is not None:
                    return known
            return await self._inner.create_session(
                app_name=app_name, user_id=user_id, state=state, session_id=session_id
            )

        made = await self._read("session.create_session", create)
        assert made is not None
        self._remember(made)
        return made

    async def _read(self, name: str, read: Any) -> Session | None:
        async def work() -> Any:
            found = await read()
            return (
                None
                if found is None
                else found.model_dump(mode="json", by_alias=True, exclude_none=True)
            )

        recorded = await claim(self._now, lambda: as_step(name, work))
        return None if recorded is None else Session.model_validate_json(json.dumps(recorded))

    # Written while it goes on

    async def append_event(self, session: Session, event: Event) -> Event:
        if event.partial:
            return event
        event.timestamp = self._times.stamp()
        event = await super().append_event(session, event)
        session.last_update_time = event.timestamp
        added = event.model_copy(deep=True)
        if self._is_in_memory:
            await self._append_in_memory(session, added)
        else:
            shown = {"author": event.author}
            await claim(
                self._now,
                lambda: as_step(
                    "session.append_event", lambda: self._append(session, added), shown=shown
                ),
            )
        return event

    async def _append(self, session: Session, event: Event) -> None:
        stored = await self._inner.get_session(
            app_name=session.app_name,
            user_id=session.user_id,
            session_id=session.id,
            config=GetSessionConfig(num_recent_events=_RECENT),
        )
        if stored is None:
            raise _deleted(session)
        if _is_new(event, stored):
            await self._inner.append_event(stored, event)

    async def _append_in_memory(self, session: Session, event: Event) -> None:
        """Without a copy of the conversation, which would be as long as that is."""
        stored = self._in_memory(session).get(session.id)
        if stored is None:
            raise _deleted(session)
        if _is_new(event, stored):
            stub = Session(id=session.id, app_name=session.app_name, user_id=session.user_id)
            await self._inner.append_event(stub, event)

    def _remember(self, session: Session) -> None:
        """In memory, a session of a process that is gone."""
        if self._is_in_memory:
            known = self._in_memory(session)
            if session.id not in known:
                known[session.id] = session.model_copy(deep=True)

    def _in_memory(self, session: Session) -> dict[str, Session]:
        inner: Any = self._inner
        of_app: dict[str, Any] = inner.sessions.setdefault(session.app_name, {})
        known: dict[str, Session] = of_app.setdefault(session.user_id, {})
        return known

    # Not used by a runner

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        return await self._inner.list_sessions(app_name=app_name, user_id=user_id)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        await self._inner.delete_session(app_name=app_name, user_id=user_id, session_id=session_id)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return await self._inner.get_user_state(app_name=app_name, user_id=user_id)

    async def flush(self) -> None:
        if holdfast.current_run() is None or self._is_in_memory:
            await self._inner.flush()


def _deleted(session: Session) -> SessionNotFoundError:
    return SessionNotFoundError(f"session {session.id!r} was deleted while a run used it")


def _is_new(event: Event, stored: Session) -> bool:
    return not any(event.id == known.id for known in stored.events[-_RECENT:])
