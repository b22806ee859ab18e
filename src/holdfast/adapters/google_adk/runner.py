"""A call of a runner, in a run.

ADK's own runner does it, in a task whose context says that its calls are durable, with a session
service that journals. Ids and times that ADK makes are the same on every replay.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from google.adk.events import Event
from google.adk.runners import Runner

import holdfast
from holdfast.adapters._shared import Place
from holdfast.adapters.google_adk import hooks, mcp, plugins
from holdfast.adapters.google_adk.ids import Ids, Times
from holdfast.adapters.google_adk.options import Active, Options, enter, options_of
from holdfast.adapters.google_adk.sessions import DurableSessions
from holdfast.adapters.google_adk.waits import Pending

_KEPT_ON_RESUME = ("user_id", "session_id", "run_config", "abort_signal")


def durable_runs(run_async: Callable[..., Any]) -> Callable[..., Any]:
    """Around `Runner.run_async`."""

    async def run(self: Runner, **given: Any) -> AsyncIterator[Event]:
        options = options_of(self.agent)
        if options is None:
            events = run_async(self, **given)
        else:
            events = _Call(self, options, run_async, given).events()
        async with contextlib.aclosing(events) as events:
            async for event in events:
                yield event

    return run


def durable_sync_runs(run: Callable[..., Any]) -> Callable[..., Any]:
    """Around `Runner.run`: its events come when all have happened."""

    def run_sync(self: Runner, **given: Any) -> Iterator[Event]:
        if options_of(self.agent) is None:
            yield from run(self, **given)
            return
        if asyncio._get_running_loop() is not None:
            raise holdfast.NotInRun(
                "Runner.run blocks the event loop that its run needs: use `async for event in "
                "runner.run_async(...)` in async workflows, and run in `def` workflows and threads"
            )

        async def collect() -> list[Event]:
            return [event async for event in self.run_async(**given)]

        yield from holdfast.race(run=collect()).result()[1]

    return run_sync


def no_live_runs(run_live: Callable[..., Any]) -> Callable[..., Any]:
    """Around `Runner.run_live`."""

    async def run(self: Runner, **given: Any) -> AsyncIterator[Event]:
        if options_of(self.agent) is not None:
            raise holdfast.Unsupported(
                "run_live() cannot be journaled: use run_async() inside of runs"
            )
        async with contextlib.aclosing(run_live(self, **given)) as events:
            async for event in events:
                yield event

    return run


class _Call:
    def __init__(
        self, runner: Runner, options: Options, run: Callable[..., Any], given: dict[str, Any]
    ) -> None:
        mcp.install()
        self._options, self._run, self._given = options, run, given
        self._place = Place()
        self._now = Active(options, self._place)
        self._times = Times(self._place)
        self._runner = copy.copy(runner)
        self._runner.session_service = DurableSessions(
            runner.session_service, self._now, self._times
        )
        self._runner.plugin_manager = plugins.of_run(runner.plugin_manager)
        self._events: asyncio.Queue[tuple[Event, asyncio.Event] | None] = asyncio.Queue()

    async def events(self) -> AsyncIterator[Event]:
        """In a task of its own: what is set in the context must not reach the caller's."""
        seed = holdfast.uuid4()
        task = self._place.branch(self._runner.agent.name, self._work(seed))
        try:
            while (item := await self._events.get()) is not None:
                event, taken = item
                yield event
                taken.set()
            await task
        finally:
            if not task.done():  # the reader has left
                task.cancel()
                await asyncio.wait({task})

    async def _work(self, seed: uuid.UUID) -> None:
        try:
            enter(self._now)
            hooks.set_id_provider(Ids(seed, self._place))
            hooks.set_time_provider(self._times)
            pending = await self._turn(self._given)
            while self._options.approvals:
                added, message = await pending.answers()
                if added is not None:
                    await self._add(added)
                if message is None:
                    break
                given = {name: self._given.get(name) for name in _KEPT_ON_RESUME}
                # Who reads the events is told, too: an agent as a tool takes the call for pending.
                given |= {"new_message": message, "yield_user_message": True}
                pending = await self._turn(given)
        finally:
            self._events.put_nowait(None)

    async def _turn(self, given: dict[str, Any]) -> Pending:
        """One invocation, or the rest of one."""
        pending = Pending()
        async with contextlib.aclosing(self._run(self._runner, **given)) as events:
            async for event in events:
                pending.note(event)
                if event.partial:
                    event.timestamp = self._times.last
                await self._hand_on(event)
        return pending

    async def _hand_on(self, event: Event) -> None:
        taken = asyncio.Event()
        self._events.put_nowait((event, taken))
        await taken.wait()

    async def _add(self, event: Event) -> None:
        """To the session, without a word to the agent."""
        service = self._runner.session_service
        session = await service.get_session(
            app_name=self._runner.app_name,
            user_id=self._given["user_id"],
            session_id=self._given["session_id"],
        )
        assert session is not None, "its events were just added to it"
        await self._hand_on(await service.append_event(session, event))
