"""One run in memory: from its claim until it ends, suspends or is taken over.

Everything here happens on the event loop's thread. An Execution decides *when* things may happen;
what is recorded is the Journal's business, who is delivered to is the Frames'. It guarantees
nothing once `closed`: code of the run that goes on regardless gets `Suspended` from every further
durable call.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import logging
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from holdfast import codec
from holdfast.clock import Micros
from holdfast.engine import rest, trouble
from holdfast.engine.context import Scope, chapter_path, current
from holdfast.engine.frame import Frame, Receiver, Wait
from holdfast.engine.held import Held
from holdfast.engine.host import Host
from holdfast.engine.inbox import Inbox
from holdfast.engine.journal import Journal
from holdfast.engine.preview import Previews
from holdfast.engine.session_view import Change, SessionView
from holdfast.engine.submission import Submissions
from holdfast.engine.task import BodyTask, Continue
from holdfast.errors import Diverged, Suspended
from holdfast.store.base import Append, ContinueAs, End, Suspend
from holdfast.types import Entry, Kind, PromiseRow, RunRow, Status

if TYPE_CHECKING:
    from holdfast.engine.workflow import Workflow

log = logging.getLogger("holdfast")


class Execution:
    def __init__(self, row: RunRow, entries: list[Entry], workflow: Workflow[Any, Any], host: Host):
        self.row = row
        self.workflow = workflow
        self.host = host
        self.loop = host.hooks.loop
        self.journal = Journal(row.id, row.epoch, entries)
        self.root = Frame(self, "", self.journal.order_of(""))
        self.replayed_steps = self.journal.completed_steps
        self.live = False  # the replay is over
        self.closed = False  # nothing is delivered, started or appended any more
        self.suspending = False  # a Suspend is on its way to the store
        self.then: Suspend | End | ContinueAs | None = None
        self.waits: dict[Wait, None] = {}
        self.executing = 0  # step bodies under way
        self.ready_inside = 0  # handles of theirs that the loop has scheduled or is running
        self.threads = 0  # executor work that has neither returned nor blocked in a durable call
        self.transparent: set[Any] = set()  # futures that stand for what others of the run wait for
        self.submissions = Submissions()  # what threads do for it
        self.portals: set[SimpleQueue[Any]] = set()  # where its threads are blocked
        self.promises: dict[str, str] = {}  # name: key
        self.new_promises: list[PromiseRow] = []
        self.session = SessionView(self, row.session) if row.session is not None else None
        self.sync_body = False  # the workflow is a `def`: its body has a thread
        self.portal_task: asyncio.Task[Any] | None = None  # what that thread is blocked in
        self.cancel_pending = False
        self.inbox = Inbox(self)
        self.cancelled = self.deadline_passed = self.pausing = False
        self.halting: Suspend | None = None  # it cannot go on; what becomes of it, unless it ends
        self.task: BodyTask | None = None
        self.now: Micros = self.journal.started_at or row.created_at
        self.dirty = False  # queued at the committer
        self.lost = False  # another worker has it
        self.settled: Suspend | End | ContinueAs | None = None  # how it left, durably
        self._barriers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._stopped: list[asyncio.Future[None]] = []
        self.previews = Previews()
        self.scratch: dict[Any, Any] = {}
        self.held = Held(self.loop, row.id)
        self.tasks: set[asyncio.Task[Any]] = set()
        self._tasks_prune_at = 64
        self._starving: asyncio.TimerHandle | None = None
        self.resting: asyncio.TimerHandle | None = None

    # Life

    def begin(self) -> None:
        """Starts (or replays) the body."""
        if self.row.epoch == 1 and trouble.is_overdue(self):
            return self._finish(trouble.too_late(self))  # it has nothing to unwind
        for _ in range(self.row.resumes - self.journal.resumes):
            self.journal.resumed_seq = self.note(Kind.RESUMED, "").seq
        context = contextvars.Context()
        context.run(current.set, Scope(self.root, chapter_path(self.journal.chapter)))
        body = self.workflow.body(self)
        self.task = context.run(lambda: BodyTask(self._main(body), loop=self.loop))
        self.tasks.add(self.task)
        self.inbox.open()  # last: a recorded cancel may be what comes first

    async def _main(self, body: Any) -> None:
        try:
            value = await body
            end = End(Status.COMPLETED, self.workflow.encode_result(value, self.row.id))
        except Suspended as gone:
            rest.forget_way(gone)
            return
        except Continue as onwards:
            # The digest stays: whoever starts the run again gives the arguments it began with.
            self._finish(ContinueAs(onwards.payload, self.row.digest))
            return
        except Diverged as error:
            self.halt(Status.PARKED, str(error))
            return
        except asyncio.CancelledError as error:
            if not self.cancelled and (self.closed or trouble.cancelled_from_outside(self)):
                raise
            if self.task is not None and self.task.cancelling():
                end = End(Status.CANCELLED, None)
            else:  # of another task, which it cancelled and then awaited: an error like any other
                end = End(Status.FAILED, codec.encode_error(error, what=f"run {self.row.id!r}"))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if self.closed:
                return
            end = End(Status.FAILED, codec.encode_error(error, what=f"run {self.row.id!r}"))
        if self.cancelled and end.status is not Status.CANCELLED:
            # Whichever of end and cancel is journaled first wins.
            end = End(Status.CANCELLED, None)
        if end.status is Status.CANCELLED and self.deadline_passed:
            end = trouble.too_late(self)
        self._finish(end)

    def _finish(self, then: End | ContinueAs) -> None:
        if self.closed:
            return
        if self.root.order:
            entry = self.root.order[0]
            why = f"it ended, but {entry.key} was recorded next"
            error = self.journal.diverged("the end of the workflow", why, self.root.order)
            self.halt(Status.PARKED, str(error))
            return
        if isinstance(then, End):
            entry = Entry(0, Kind.END, "", self.tick(), failed=then.status is not Status.COMPLETED)
            self.append(entry)
        self.then = then
        self.close()
        self.host.mark(self)

    def fail(self, error: BaseException) -> None:
        """The run cannot even begin: its input does not fit the code."""
        self._finish(End(Status.FAILED, codec.encode_error(error, what=f"run {self.row.id!r}")))

    def halt(self, status: Status, reason: str) -> None:
        """Stops the run until somebody resumes it; for good, if it was to end anyway."""
        if not self.closed:
            log.warning("run %r is %s: %s", self.row.id, status, reason)
            self.close()
            trouble.leave(self, Suspend(None, self.inbox.seen, reason, status))

    def close(self) -> None:
        self.closed = True
        self.inbox.close()
        for timer in filter(None, (self._starving, self.resting)):
            timer.cancel()
        self.root.close()

    def evict(self) -> None:
        """Leaves memory: whatever the run's code awaits raises Suspended, so that it unwinds."""
        if not self.closed:
            self.close()
        for portal in self.portals:
            portal.put(None)  # now: its body may block the loop until its threads are back
        awaited: list[Receiver] = [wait.future for wait in self.waits]
        awaited += [future for _, _, future in self._barriers]
        awaited += self._stopped + self.root.held + self.previews.behind
        for future in awaited:
            if not future.done():
                future.set_exception(Suspended())
                rest.consume(future)
        rest.unwind(self.tasks, self.host.hooks)
        self.held.close()
        self.host.left(self)
        if self.settled is not None:
            rest.let_go(self)

    # The gate before every effect

    async def may_start(self, frame: Frame) -> None:
        """Returns when a new effect may begin: the replay is over, all before it is durable."""
        journal = self.journal
        while True:
            if self.closed:
                raise Suspended
            if not self.live or frame.order:
                future: asyncio.Future[None] = self.loop.create_future()
                frame.held.append(future)
                await future
            elif journal.durable_seq != journal.last_seq:
                await self._durable(journal.last_seq)
            elif self.pausing or self.suspending or not self.host.lease_holds():
                future = self.loop.create_future()
                self._stopped.append(future)
                await future
            else:
                return

    def open_gate(self) -> None:
        """Effects that were stopped look again whether they may begin."""
        stopped, self._stopped = self._stopped, []
        for future in stopped:
            if not future.done():
                future.set_result(None)

    async def barrier(self, seq: int) -> None:
        """Returns when all entries up to `seq` are durable."""
        if self.journal.durable_seq < seq:
            await self._durable(seq)

    def _durable(self, seq: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self.loop.create_future()
        heapq.heappush(self._barriers, (seq, id(future), future))
        return future

    def committed(self, count: int) -> None:
        """The committer's word that `count` more entries are durable."""
        self.journal.written(count)
        durable = self.journal.durable_seq
        while self._barriers and self._barriers[0][0] <= durable:
            future = heapq.heappop(self._barriers)[2]
            if not future.done():
                future.set_result(None)
        if self.journal.durable and not self.root.ready:
            rest.consider(self)

    # Growing the journal

    def append(self, entry: Entry) -> None:
        if self.closed:
            raise Suspended
        if self.session is not None and self.session.has_news:
            self.session.show_news(entry)
        self.journal.append(entry)
        if not self.dirty:
            self.host.mark(self)

    def note(self, kind: Kind, key: str, **fields: Any) -> Entry:
        entry = Entry(0, kind, key, self.tick(), **fields)
        self.append(entry)
        return entry

    def tick(self) -> Micros:
        """The time now, never earlier than what the run has seen already."""
        now = self.host.clock.now()
        return now if now > self.now else self.now

    def delivered_again(self, entry: Entry) -> None:
        """The body gets a recorded completion."""
        self.pass_time(entry.at)
        if self.session is not None:
            self.session.replay(entry)

    def pass_time(self, at: Micros) -> None:
        if at > self.now:
            self.now = at

    def operation(self, limit: int, bytes_max: int) -> tuple[Append, int]:
        """What is to be committed now, and how much payload its entries carry."""
        entries, size = self.journal.take(limit, bytes_max)
        complete = len(entries) == self.journal.last_seq - self.journal.durable_seq
        then = self.then if complete else None
        # Only what becomes of the run needs the time; entries have their own.
        at = self.tick() if then else 0
        promises, self.new_promises = self.new_promises, []
        written: list[Change] = []
        if self.session is not None and self.session.unsent:
            written = self.session.take(self.journal.durable_seq + len(entries))
        return Append(self.row.key, self.row.epoch, entries, at, then, promises, written), size

    @property
    def is_suspect(self) -> bool:
        """Did it kill its worker before, and has it completed nothing since?"""
        return self.row.strikes >= 2 and self.journal.completed_steps == self.replayed_steps

    @property
    def wants_commit(self) -> bool:
        return bool(self.journal.has_pending or self.then or self.new_promises)

    def announce(self, promise: PromiseRow) -> None:
        """Makes a promise known outside, so that it can be listed and answers can be checked."""
        self.new_promises.append(promise)
        if not self.closed:
            self.host.mark(self)

    # Delivery, as the frames ask

    def release(self, frame: Frame) -> bool:
        """The frame has no recorded entries left and is quiet: new effects may begin."""
        if self.suspending:
            return False
        if not self.live:
            self.live = True
            self.journal.replayed()
            if self._starving is not None:
                self._starving.cancel()
                self._starving = None
        if frame.held:
            held, frame.held = frame.held, []
            for future in held:
                if not future.done():
                    future.set_result(None)
        return True

    def stay(self, refused: Suspend) -> None:
        """The store refused to suspend the run: mail had come. It goes on in memory."""
        self.suspending = False
        self.then = self.then if self.then is not refused else None  # it may have ended meanwhile
        self.inbox.due = self.inbox.seen <= refused.mail_seen
        self.open_gate()
        for frame in {self.root, *(wait.claim.scope.frame for wait in self.waits)}:
            frame.pump()

    def rest(self, frame: Frame) -> None:
        rest.consider(self)
        self.host.rested(self)

    def reconsider(self) -> None:
        """Something began to wait, perhaps now the whole run. Asked outside of its own handles."""
        self.host.hooks.soon(rest.consider, self)

    def starved(self) -> None:
        """Replaying, quiet, and the next recorded entry has not been asked for."""
        if self._starving is None:
            self._starving = self.call_later(trouble.STARVED_SECONDS, self._still_starved)

    def _still_starved(self) -> None:
        self._starving = None
        trouble.starved(self)

    def spins(self) -> None:
        """The body keeps itself busy, so nothing gets through to it."""
        if self.closed:
            return
        self.root.spun = 0
        self.root.order = None
        self.fail(trouble.spinning(self))

    # Waiting

    def wait_for(self, wait: Wait) -> None:
        self.waits[wait] = None
        self._stir()

    def done_waiting(self, wait: Wait) -> None:
        self.waits.pop(wait, None)
        self._stir()

    def _stir(self) -> None:
        """The run waits for something else now: how long it stays in memory is decided anew."""
        if self.resting is not None:
            self.resting.cancel()
            self.resting = None

    def add_task(self, task: asyncio.Task[Any]) -> None:
        if self.closed:  # made by code that is on its way out
            return rest.unwind([task], self.host.hooks)
        self.tasks.add(task)
        if len(self.tasks) >= self._tasks_prune_at:
            self.tasks = {task for task in self.tasks if not task.done()}
            self._tasks_prune_at = max(64, 2 * len(self.tasks))

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """A plain timer that belongs to no run."""
        return self.host.hooks.call_later(seconds, callback, context=contextvars.Context())

    def call_at(self, at: Micros, callback: Callable[[], object]) -> Any:
        return contextvars.Context().run(
            self.host.clock.call_at, at, callback, self.host.hooks.call_later
        )

    def arrive(self, entry: Entry, wait: Wait) -> None:
        """A live completion for the frame that waits for it."""
        if self.closed:
            return
        frame = wait.claim.scope.frame
        if frame.is_root:
            frame.arrive(entry, wait)
        elif not wait.future.done() and (wait.admit is None or self.inbox.admits(entry, wait)):
            # A step's body sees nothing before it is durable.
            self.append(entry)
            self._durable(entry.seq).add_done_callback(
                lambda _: frame.arrive(entry, wait), context=contextvars.Context()
            )
