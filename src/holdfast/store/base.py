"""The store protocol: every verb is one transaction, a refused write is an error, never silence.

Only a run's owner writes its journal, through `commit`. Outsiders write the inbox, through `post`.
A run can be claimed when its `ready_at` is set and has passed: that one column is the queue, the
timers and the wake-ups alike. A store must keep these promises:

- Fencing by log position. A claim appends an entry of its own and raises the run's epoch. An append
  lands only if the entry before its first one exists with the appender's epoch and no later one
  does; otherwise that operation (and no other of the batch) comes back as LeaseLost.
- No lost wake-up. Suspending re-reads the inbox under the lock that posting takes, too.
- What `commit` acknowledged survives the death of the process and the loss of power.

A store does not interpret payloads, does not know workflows, and never runs user code.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from holdfast.clock import Micros
from holdfast.store.base_schedules import Due as Due
from holdfast.store.base_schedules import ScheduleStore
from holdfast.store.base_schedules import Ticked as Ticked
from holdfast.store.base_sessions import SessionStore
from holdfast.text import storable
from holdfast.types import (
    Entry,
    Mail,
    MailKind,
    NewRun,
    PromiseRow,
    QueueRow,
    RunFilter,
    RunId,
    RunKey,
    RunRow,
    Status,
    WorkerId,
    WorkerRow,
)


class Start(NamedTuple):
    """Accepts a run. An id that exists already is not an error here: see Started.

    If that is an awaited child of the same parent, with the same input, its parent hears of its end
    where it awaits it now (`parent_step`): at once, if it has ended and no mail of that is left to
    be delivered, also if it was told before. Under way, it is handed on only to a later generation.

    A start that joined another run is remembered by its id for as long as that run is kept, so that
    it posts its input once, however often it is repeated: also after continue_as, and after the run
    has ended. With another digest it is Refused: IdReused. If the run ends without having received
    it, it is started again in that transaction, as if it came then (unless it was interrupted).
    """

    run: NewRun
    # Claim it at once, if the session's slot is free, nobody is ahead of it, and its queue has no
    # limits.
    claim_for: WorkerId | None = None


class Started(NamedTuple):
    row: RunRow
    created: bool  # False: a run of this id was there; the caller compares the digests
    claimed: bool = False
    joined: bool = False  # on_busy="join": `row` is the session's own run, which got the input


class Suspend:
    """Leave memory. Refused (see Appended.suspended) if mail came after `mail_seen`."""

    __slots__ = ("mail_seen", "ready_at", "reason", "status", "unwinding")
    __match_args__ = ("ready_at", "mail_seen", "reason", "status", "unwinding")

    def __init__(
        self,
        # The next deadline; None: only mail wakes it, and nothing a parked run. NEVER: mail does.
        ready_at: Micros | None,
        mail_seen: int,
        reason: str,
        status: Status = Status.WAITING,  # or PAUSED, PARKED
        unwinding: bool = False,  # it is on its way out anyway: its deadline counts no more
    ) -> None:
        self.ready_at = ready_at
        self.mail_seen = mail_seen
        self.reason = storable(reason)  # it may quote an error of the user's
        self.status = status
        self.unwinding = unwinding


class End(NamedTuple):
    status: Status  # COMPLETED, FAILED or CANCELLED
    output: bytes | None


class ContinueAs(NamedTuple):
    """Start the run afresh: the journal is emptied, the generation rises, the input is new."""

    input: bytes
    digest: bytes


class StateWrite(NamedTuple):
    """A change of the session's keyed state; `value` None deletes."""

    session: str
    key: str
    value: bytes | None


class MessageWrite(NamedTuple):
    """A message at the end of the session's list."""

    session: str
    payload: bytes


class Append(NamedTuple):
    """Entries of one run, with dense sequence numbers, and what becomes of the run after them.

    Without entries, the newest one must have my epoch. REFUSED deletes the answer in `mail`: its
    promise can be answered anew."""

    run: RunKey
    epoch: int
    entries: list[Entry]
    at: Micros
    then: Suspend | End | ContinueAs | None = None
    promises: Sequence[PromiseRow] = ()
    session: Sequence[StateWrite | MessageWrite] = ()


class Appended(NamedTuple):
    suspended: bool = False  # only ever True when Append.then was a Suspend


class Refused(NamedTuple):
    """The operation was not done; every other one of the batch was."""

    error: Exception


Operation = Start | Append
Outcome = Started | Appended | Refused


class Claimed(NamedTuple):
    row: RunRow
    seq: int  # of the claim entry, the newest of the journal


class Reservation(NamedTuple):
    """A call that a limiter is to admit: one per `interval`, after a quiet time `burst` at once."""

    name: str
    interval: Micros
    burst: int = 1
    place: Micros | None = None  # which it has, and keeps unless the limiter is held off longer


class Reaped(NamedTuple):
    worker: WorkerRow
    runs: list[RunId]
    quarantined: list[RunId]


class Leasekeeper(Protocol):
    """Renews one worker's lease from a thread of its own, where no busy event loop can lose it."""

    def renew(self) -> bool:
        """False: the worker has been reaped; it must stop."""
        ...

    def is_alive(self) -> bool:
        """False: others may take this worker for dead right now, so it must not start anything."""
        ...

    def hand_back(self, note: str) -> int:
        """Frees all of the worker's runs, because it hangs; says how many. Strikes are counted as
        if it had died: a run that blocks the event loop would block the next worker's, too."""
        ...

    def close(self) -> None: ...


class Store(ScheduleStore, SessionStore, Protocol):
    url: str
    commits_at_once: int  # how many `commit`s it gains from
    poll_seconds: float  # how often a worker looks around, behind the notifications

    async def open(self) -> None:
        """Connects, and checks or (where that is safe) upgrades the schema."""
        ...

    async def close(self) -> None: ...

    # Runs, by their owner

    async def commit(self, operations: Sequence[Operation], *, request: str = "") -> list[Outcome]:
        """Does all operations, durably, or raises and may be called again; outcomes come in
        the same order. Each operation is done as a whole or refused. A batch whose answer was
        lost is sent again as it was, under the same `request`, and is done once."""
        ...

    async def claim(
        self,
        worker: WorkerId,
        workflows: Sequence[str],
        now: Micros,
        limit: int,
        *,
        alone: bool = False,
    ) -> list[Claimed]:
        """Takes claimable runs, those of high priority first.

        Inside of one priority, the lanes of runs take turns, and each gives its longest ready: a
        lane is a workflow in a queue, and there a fairness key. Of a queue's keys the least served
        goes first; one that is new or was away starts where the others are by then. A claim need
        not look at all keys, if there are more than 1,000, but then at others each time.

        What was declared of a queue holds: never more than `concurrency` runs of it are owned, nor
        more than `per_worker` by one worker; runs are claimed for the first time no faster than its
        rate. A paused queue gives nothing.

        A run of a session is taken only if no other run holds the session, in order of arrival.
        A suspect (two or more strikes) is only returned alone, and only if `alone` is True, that
        is, when the worker has nothing else in memory. LeaseLost if the worker is not registered:
        nobody would ever reap its runs.
        """
        ...

    async def journal(self, run: RunKey) -> list[Entry]: ...

    async def mail(self, runs: Sequence[tuple[RunKey, int]]) -> list[Mail]:
        """Mail of these runs that came after the id given with each, in order of arrival."""
        ...

    async def release(
        self, worker: WorkerId, runs: Sequence[tuple[RunKey, int]], now: Micros
    ) -> int:
        """Hands runs (with the epoch they are held at) back; no strike is counted."""
        ...

    async def owned(self, worker: WorkerId) -> list[tuple[RunKey, int]]:
        """The runs that this worker owns, with the epoch of each."""
        ...

    async def next_ready(
        self, workflows: Sequence[str], *, alone: bool = True, worker: WorkerId | None = None
    ) -> Micros | None:
        """When this worker (None: any) can claim the next run; `alone` as for `claim`: whether
        suspects count. Runs of a queue that is full or paused do not count: when that is over,
        the store rings. Of a queue's rate, the time is known."""
        ...

    # Runs, by outsiders

    async def get(self, run: RunId) -> RunRow | None: ...

    async def settled(self, runs: Sequence[RunId]) -> list[RunRow]:
        """Those of these runs that have ended, are parked or quarantined. StoreMoved: none is here,
        and none will be."""
        ...

    async def find(self, which: RunFilter) -> list[RunRow]: ...

    async def post(
        self, run: RunId, kind: MailKind, name: str, payload: bytes | None, now: Micros
    ) -> Mail:
        """Puts mail into a run's inbox and makes a waiting run claimable (parked: see Suspend).

        Promises: the first answer stands, a later one is AlreadyResolved. Cancel and pause are
        posted once; posting them again returns the mail that is there. UnknownRun, AlreadyEnded.
        Cancel wakes halted runs too, however often it is posted, and takes a pause back; a pause
        after it changes nothing, and returns the cancel. A run that was never claimed, or is
        quarantined, has nothing to unwind: it is cancelled at once, whoever is ahead of it.
        """
        ...

    async def resume(self, run: RunId, now: Micros) -> RunRow:
        """Makes a paused, parked or quarantined run claimable, but none before its delay is over;
        NotResumable otherwise."""
        ...

    async def rerun(self, run: RunId, epoch: int, now: Micros, drop: Sequence[int]) -> RunRow:
        """Makes a failed or cancelled run go on from what its journal holds, without the entries of
        these numbers; the others are numbered anew. What told its parent of its end is gone from
        the inbox. NotResumable otherwise, and if the epoch is another: its journal went on since
        the numbers were chosen."""
        ...

    async def fork(self, run: RunId, seq: int, new: NewRun) -> Started:
        """Starts a new run with a copy of the journal's entries before `seq`, as of epoch 0."""
        ...

    async def promises(self, run: RunKey) -> list[PromiseRow]: ...

    async def children(self, run: RunKey) -> list[RunRow]: ...

    async def ahead(self, run: RunKey, now: Micros) -> RunRow | None:
        """The run of its session that keeps this one, which is due, from being claimed: the oldest
        that holds the session, or else the first in order of arrival. None: no other run does."""
        ...

    # Queues and limiters

    async def declare(self, queues: Sequence[QueueRow]) -> None:
        """Sets the limits of these queues; the last word on each counts. Whether a queue is paused,
        and how far its rate is used up, stays."""
        ...

    async def pause_queue(self, queue: str, *, paused: bool = True) -> None:
        """Stops a queue's runs from being claimed, or lets them be claimed again; runs in memory go
        on. UnknownQueue if nobody declared it and no run is in it."""
        ...

    async def queues(self, now: Micros) -> list[QueueRow]:
        """Every queue that was declared or has runs that have not ended, by name."""
        ...

    async def reserve(self, reservations: Sequence[Reservation], now: Micros) -> list[Micros]:
        """Takes a place in limiters that all workers share, and says when each may go: not before
        `now`, nor while the limiter is held off."""
        ...

    async def hold_off(self, name: str, until: Micros) -> None:
        """Lets a limiter admit nobody until then."""
        ...

    # Workers

    async def register(self, worker: WorkerRow) -> Leasekeeper:
        """Publishes the worker. Its host, pid and process_started are this process's own: the store
        fills them in."""
        ...

    async def deregister(self, worker: WorkerId) -> None:
        """The worker stops in good order; runs it did not release are released with it."""
        ...

    async def workers(self) -> list[WorkerRow]: ...

    async def is_dead(self, worker: WorkerRow) -> bool:
        """Is it certain that this worker's process is gone? False when that cannot be known."""
        ...

    def watch(self, worker: WorkerRow, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back on the event loop, once, when the worker's process dies, as soon as that can
        be known; returns the way to stop it."""
        ...

    async def reap(self, worker: WorkerId, now: Micros, *, dead: bool = False) -> Reaped | None:
        """Frees the runs of a worker that is dead, or whose lease has run out; None: neither. That
        is looked at in the transaction that frees them, so that nobody is reaped who has come back
        meanwhile. `dead`: its death is certain by something else, and is not looked at.

        A run that made no progress since it was claimed gets a strike; see `claim` for suspects. A
        suspect that ran alone is quarantined at its fifth strike.
        """
        ...

    # The rest

    def listen(self, callback: Callable[[], None], *, ends: bool = True) -> Callable[[], None]:
        """Calls back on the event loop, soon after something changed that others made: runs became
        claimable, mail came, runs ended (the last only if `ends`). May call without a cause;
        returns the way to stop it."""
        ...

    async def prune(
        self, ended_before: Micros, limit: int, *, now: Micros = 0, keep_ids_until: Micros = 0
    ) -> int:
        """Deletes up to `limit` ended runs with all they own; says how many.

        Children stay as long as their parent has not ended. A deleted run's id, and those of starts
        that joined it, cannot be used again before `keep_ids_until`: starting them is refused as
        IdRetired. What the store keeps for itself and needs no longer goes, too.
        """
        ...

    async def backup(self, path: str) -> None:
        """Writes a consistent, verified copy while others go on writing."""
        ...

    async def check(self) -> list[str]:
        """What is wrong with the stored data; empty if nothing."""
        ...
