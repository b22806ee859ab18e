"""The app: what users open, start runs with, and ask about them.

An app is a client of its store and, unless told otherwise, a worker too. Nothing is opened before
`open()`, so that servers which fork after import are safe. It belongs to the event loop that opened
it: on another one, every call is a WrongEventLoop. What only people ask for, as `why` and `rerun`
do, is imported when they do: the rest counts in every recovery.
"""

from __future__ import annotations

import asyncio
import builtins
import copy
import types
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from holdfast.client.ids import check_filter, refuse_if_no_id, refuse_if_no_text
from holdfast.client.parts import Parts
from holdfast.client.queues import Queueing, declare_queues, queues_listed
from holdfast.client.results import Results
from holdfast.client.run import Run
from holdfast.client.schedules import Scheduling, declare
from holdfast.client.schedules import listed as schedules_listed
from holdfast.clock import Clock, SystemClock
from holdfast.engine.commit import Committer
from holdfast.engine.context import scope
from holdfast.engine.inputs import with_whole_inputs
from holdfast.engine.schedule import Schedule
from holdfast.engine.workflow import (
    RunOptions,
    Workflow,
    new_run,
    refuse_if_reused,
    require,
    workflow_of,
)
from holdfast.errors import (
    AlreadyEnded,
    BadArguments,
    IdReused,
    NotOpen,
    UnknownRun,
    UnknownWorkflow,
)
from holdfast.store import open_store
from holdfast.store.base import Start, Started, Store
from holdfast.text import fresh_id
from holdfast.types import (
    Entry,
    MailKind,
    NewRun,
    PromiseRow,
    RunFilter,
    RunRow,
    WorkerRow,
)
from holdfast.worker.options import WorkerOptions
from holdfast.worker.timekeeper import Timekeeper
from holdfast.worker.worker import Worker

if TYPE_CHECKING:
    from holdfast.client.agents import Agent
    from holdfast.client.sync import SyncDoor
    from holdfast.limits import Queue

P = ParamSpec("P")
R = TypeVar("R")


class Holdfast(Queueing, Scheduling):
    """Durable runs in a store: `Holdfast("sqlite:///agents.db", workflows=[research])`.

    store: its address, or a store object, which is then opened and closed with the app.
    workflows: the workflows and durable agents this app serves, or modules that hold them.
    schedules: what is to be started when; queues: their limits. Both are written to the store when
    the app opens.
    worker: False makes a mere client: it starts runs and asks about them, others execute them.
    """

    def __init__(
        self,
        store: str | Store = "sqlite:///holdfast.db",
        *,
        workflows: Iterable[Workflow[Any, Any] | Agent | types.ModuleType] = (),
        schedules: Iterable[Schedule] = (),
        queues: Iterable[Queue] = (),
        worker: bool = True,
        worker_options: WorkerOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.url = store if isinstance(store, str) else store.url
        self._given_store = None if isinstance(store, str) else store
        self.workflows = _listed(workflows)
        self._schedules = schedules_listed(schedules, self.workflows)
        self._queues = queues_listed(queues)
        self._has_worker = worker
        self._worker_options = worker_options or WorkerOptions()
        self._options: dict[str, Any] = {}
        self._parts = Parts(clock or SystemClock())

    def with_options(self, **options: Any) -> Holdfast:
        """The same app, with other options for the runs it starts: id, session, deadline, …"""
        RunOptions().updated(**options)
        other = copy.copy(self)
        other._options = {**self._options, **options}
        return other

    # Open and close

    async def open(self, *, worker: bool | None = None) -> Holdfast:
        parts = self._parts
        if parts.store is not None:
            raise NotOpen("the app is open already")
        store = parts.store = self._given_store or open_store(self.url)
        parts.loop = asyncio.get_running_loop()
        try:
            await store.open()
            await declare_queues(store, self._queues)
            await declare(store, self._schedules.values(), parts.clock.now())
            parts.results = Results(store)
            if self._has_worker if worker is None else worker:
                parts.worker = Worker(store, self.workflows, parts.clock, self._worker_options)
                parts.worker.on_settled = parts.results.settled_here
                parts.results.is_here = parts.worker.executes
                await parts.worker.open()
            else:
                parts.timekeeper = Timekeeper(store, parts.clock)
                await parts.timekeeper.open()
                parts.committer = Committer(store, lambda run: None)
                parts.committer.open()
        except BaseException:
            parts.clear()
            await store.close()
            raise
        return self

    async def close(self, *, grace: timedelta | None = None) -> None:
        parts = self._parts
        parts.require_loop()
        store, worker, committer, results = parts.clear()
        if store is None:
            return
        try:
            if results is not None:
                results.close()
            if worker is not None:
                await worker.close(grace)
            if committer is not None:
                await committer.close()
        finally:
            await store.close()

    async def __aenter__(self) -> Holdfast:
        return await self.open()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def store(self) -> Store:
        if self._parts.store is None:
            raise NotOpen
        self._parts.require_loop()
        return self._parts.store

    @property
    def _results(self) -> Results:
        if self._parts.results is None:
            raise NotOpen
        self._parts.require_loop()
        return self._parts.results

    @property
    def worker(self) -> Worker | None:
        return self._parts.worker

    @property
    def clock(self) -> Clock:
        return self._parts.clock

    def sync(self) -> SyncDoor:
        """A door for code without an event loop: `with app.sync() as door:
        door.start(...).result()`."""
        from holdfast.client.sync import SyncDoor

        return SyncDoor(self)

    # Start

    @overload
    async def start(
        self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Run[R]: ...
    @overload
    async def start(self, agent: Agent, /, *args: Any, **kwargs: Any) -> Run[Any]: ...
    async def start(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Run[Any]:
        """Accepts a run of a workflow, or of an agent that was made durable; returns once it is
        durable. The same id started twice is one run."""
        workflow = require(workflow)
        if workflow.name not in self.workflows and not workflow.is_remote:
            raise UnknownWorkflow(
                f"workflow {workflow.name!r} is not listed: "
                f"Holdfast(..., workflows=[{workflow.name}])"
            )
        store = self.store
        workflow.check()
        bound = workflow.with_options(**self._options) if self._options else workflow
        where = scope()
        if where is not None and where.frame.is_root and bound.options.id is None:
            raise BadArguments(
                "app.start() without an id in a workflow's body would start another run on every "
                "replay: use `holdfast.child(...)` or `holdfast.start(...)`, or give it an id"
            )
        payload = bound.encode_input(args, kwargs)
        if bound.options.durability == "none":
            return self._start_undurable(bound, payload)
        digest = bound.digest(payload)
        new = new_run(bound.name, payload, self._parts.clock, bound.options, digest)
        started = await self._start(store, new)
        if not started.created and not started.joined:
            refuse_if_reused(started.row, new, bound)
        return Run(self, started.row.id, bound)

    def _start_undurable(self, workflow: Workflow[Any, R], payload: bytes) -> Run[R]:
        if self._parts.worker is None:
            raise BadArguments("durability='none' runs in this process, but the app has no worker")
        workflow = workflow.with_options(id=workflow.options.id or fresh_id())
        run: Run[R] = Run(self, workflow.options.id or "", workflow)
        run._in_memory = self._parts.worker.start_undurable(workflow, payload)
        return run

    async def _start(self, store: Store, new: NewRun) -> Started:
        parts = self._parts
        if parts.worker is not None:
            return await parts.worker.start(new)
        assert parts.committer is not None
        return await parts.committer.start(Start(new))

    def get(self, run_id: str) -> Run[Any]:
        """A handle on a run, whether it exists or not."""
        return Run(self, run_id, None)

    # Ask

    async def row(self, run_id: str) -> RunRow:
        refuse_if_no_id(run_id)
        row = await self.store.get(run_id)
        if row is None:
            raise UnknownRun(f"there is no run {run_id!r}")
        return row

    async def list(self, which: RunFilter | None = None) -> builtins.list[RunRow]:
        which = which or RunFilter()
        check_filter(which)
        return await self.store.find(which)

    async def history(self, run_id: str) -> builtins.list[Entry]:
        return list(with_whole_inputs(await self.store.journal((await self.row(run_id)).key)))

    async def promises(self, run_id: str) -> builtins.list[PromiseRow]:
        return await self.store.promises((await self.row(run_id)).key)

    async def workers(self) -> builtins.list[WorkerRow]:
        return await self.store.workers()

    async def why(self, run_id: str) -> str:
        """One paragraph in plain words: what the run does or waits for, and what would unblock
        it."""
        from holdfast.client import explain
        from holdfast.client.circles import circle

        row = await self.row(run_id)
        now = self._parts.clock.now()
        ahead = await self.store.ahead(row.key, now) if row.session is not None else None
        return explain.why(
            row,
            await self.store.journal(row.key),
            await self.store.promises(row.key),
            await self.store.mail([(row.key, 0)]),
            [w for w in await self.store.workers() if not await self.store.is_dead(w)],
            now,
            served=row.workflow in self.workflows if self.workflows else None,
            ahead=ahead,
            circle=await circle(self.store, row, now),
            queue=await self._queue_waits_for(row),
        )

    async def result(self, run_id: str) -> Any:
        return await self.get(run_id).result()

    # Act

    async def resolve(self, run_id: str, name: str, value: object, *, early: bool = False) -> None:
        """Answers a promise, with a value of its type or with plain data that can become one. The
        first answer stands; `early` answers one that a run which waits has not opened yet."""
        from holdfast.client.answers import answer_to, check_answer, encode_for_run

        row = await self.row(run_id)
        _not_ended(row)
        payload = encode_for_run(value, answer_to(name, run_id))
        check_answer(row, await self.store.promises(row.key), name, payload, early=early)
        await self._post(run_id, MailKind.PROMISE, name, payload)

    async def send(self, run_id: str, message: object, *, channel: str = "") -> None:
        """Sends a message, which the run gets by `holdfast.receive()`."""
        from holdfast.client.answers import encode_for_run

        payload = encode_for_run(message, f"the message to run {run_id!r}")
        await self._post(run_id, MailKind.MESSAGE, channel, payload)

    async def cancel(self, run_id: str) -> None:
        """Asks a run to stop; it may clean up first."""
        await self._post(run_id, MailKind.CANCEL, "", None)

    async def pause(self, run_id: str) -> None:
        """Stops a run at its next step boundary, until it is resumed."""
        await self._post(run_id, MailKind.PAUSE, "", None)

    async def delete_session(self, name: str) -> bool:
        """Deletes a session's state and messages; False: it had none. SessionBusy while a run of it
        has not ended. Ended runs stay, for as long as `Retention` says."""
        refuse_if_no_text("the name of a session", name)
        return await self.store.delete_session(name)

    async def _post(self, run_id: str, kind: MailKind, name: str, payload: bytes | None) -> None:
        refuse_if_no_id(run_id)
        refuse_if_no_text("the name of a promise or channel", name)
        await self.store.post(run_id, kind, name, payload, self._parts.clock.now())

    async def resume(self, run_id: str) -> None:
        """Lets a paused, parked or quarantined run go on."""
        refuse_if_no_id(run_id)
        await self.store.resume(run_id, self._parts.clock.now())

    async def rerun(self, run_id: str) -> Run[Any]:
        """Lets a failed run go on from the step that failed.

        What others wrote into its session meanwhile, it sees from its first new step on.
        """
        from holdfast.client.rerun import rerun

        await rerun(self.store, await self.row(run_id), self.clock)
        return self.get(run_id)

    async def fork(self, run_id: str, *, before: str, id: str | None = None) -> Run[Any]:
        """Starts a new run with what another did before the step of key `before`.

        What was written into its session since then, it sees from its first new step on.
        """
        row = await self.row(run_id)
        at = next((e.seq for e in await self.store.journal(row.key) if e.key == before), None)
        if at is None:
            raise BadArguments(
                f"run {run_id!r} has no step {before!r}; see `holdfast show {run_id}`"
            )
        found = self.workflows.get(row.workflow)  # None: a mere client, others serve it
        options = RunOptions(
            id=id,
            session=row.session,
            while_waiting=row.while_waiting,
            priority=row.priority,
            queue=row.queue,
            fairness_key=row.fairness_key or None,
        )
        new = new_run(row.workflow, row.input, self._parts.clock, options)
        started = await self.store.fork(run_id, at, new._replace(options=row.options))
        if not started.created:
            raise IdReused(f"run {new.id!r} exists already; a fork needs an id of its own")
        return Run(self, started.row.id, found)


def _listed(
    given: Iterable[Workflow[Any, Any] | Agent | types.ModuleType],
) -> dict[str, Workflow[Any, Any]]:
    found: dict[str, Workflow[Any, Any]] = {}
    for one in given:
        members = vars(one).values() if isinstance(one, types.ModuleType) else [require(one)]
        for member in members:
            workflow = workflow_of(member)
            if workflow is None:
                continue
            other = found.setdefault(workflow.name, workflow)
            if other.fn is not workflow.fn:
                raise BadArguments(
                    f"two workflows are named {workflow.name!r}; give one `@workflow(name=...)`"
                )
    return found


def _not_ended(row: RunRow) -> None:
    if row.status.ended:
        raise AlreadyEnded(f"run {row.id!r} has ended ({row.status})")
