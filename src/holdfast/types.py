"""Ids, statuses and the rows that every layer shares.

Rows are plain data: they promise nothing about how fresh they are. Those that nobody changes are
named tuples: to make a dataclass takes almost a millisecond, which counts in every recovery.
Annotations are evaluated here, because unevaluated ones cost named tuples twice the time.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

from holdfast.clock import Micros
from holdfast.records import FrozenRecord, Record

RunId = str
WorkerId = str
RunKey = int
"""A store's own handle of a run: opaque to everybody else, valid in that store only."""

OnBusy = Literal["enqueue", "reject", "join", "interrupt"]
WhileWaiting = Literal["hold", "release"]
CatchUp = Literal["skip", "latest", "all"]


class Status(StrEnum):
    PENDING = "pending"  # a worker may claim it
    RUNNING = "running"  # a worker owns it
    WAITING = "waiting"  # out of memory until mail or a deadline comes
    PAUSED = "paused"  # stopped by hand
    PARKED = "parked"  # a step's retries are exhausted; `resume` grants new ones
    QUARANTINED = "quarantined"  # it kept killing its worker
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in ENDED


ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
HALTED = frozenset({Status.PAUSED, Status.PARKED, Status.QUARANTINED})

QUARANTINE_STRIKES = 5
"""So many deaths of its worker, without any progress, and a run is quarantined."""
"""Not ended, and going on only when somebody says so."""


class Kind(StrEnum):
    """What an entry records.

    Completions are delivered to the run in journal order. Notes are looked up when asked for.
    """

    CLAIM = "claim"  # a worker took the run; fences the one before
    STEP = "step"  # completion: a step ended, well or badly
    TIMER = "timer"  # completion: a deadline passed
    PROMISE = "promise"  # completion: an answer from outside
    CHILD = "child"  # completion: a child run ended
    MESSAGE = "message"  # completion: a message from outside
    THREAD = "thread"  # completion: plain work in an executor returned
    CANCEL = "cancel"  # completion: somebody asked the run to stop
    DEADLINE = "deadline"  # completion: the run's own deadline passed
    VALUE = "value"  # note: now(), random(), uuid4(), once()
    ATTEMPT = "attempt"  # note: a try failed or waits for its turn; says when the next is due
    ABANDONED = "abandoned"  # note: a started step was cancelled by its run
    RESUMED = "resumed"  # note: exhausted steps get a fresh set of attempts
    STASH = "stash"  # note: an explicit snapshot
    STATE = "state"  # note: a session's state or message list changed
    REFUSED = "refused"  # note: an answer did not fit; its mail goes, and the promise is open again
    END = "end"  # the run's result, error or successor


COMPLETIONS = frozenset(
    {
        Kind.STEP,
        Kind.TIMER,
        Kind.PROMISE,
        Kind.CHILD,
        Kind.MESSAGE,
        Kind.THREAD,
        Kind.CANCEL,
        Kind.DEADLINE,
    }
)


@dataclass(slots=True, eq=False, repr=False)
class Entry(Record):
    """One line of a run's journal."""

    seq: int
    kind: Kind
    key: str  # scope path and name#n
    at: Micros
    epoch: int = 0
    position: int = 0  # which claim of its scope this was, from 1; 0: it has none
    attempt: int = 0
    failed: bool = False  # output holds an error
    digest: bytes | None = None  # of the arguments
    input: bytes | None = None
    output: bytes | None = None
    started_at: Micros | None = None
    due_at: Micros | None = None  # ATTEMPT: when the next try is due
    mail: int | None = None  # the inbox row this delivers, or refuses


class NewRun(NamedTuple):
    id: RunId
    workflow: str
    input: bytes
    digest: bytes
    created_at: Micros
    incarnation: str
    version: str = ""
    queue: str = "default"
    priority: int = 0  # higher goes first
    ready_at: Micros = 0  # not before
    deadline_at: Micros | None = None
    session: str | None = None
    on_busy: OnBusy = "enqueue"
    while_waiting: WhileWaiting = "hold"
    parent: RunKey | None = None
    parent_step: str | None = None  # where the parent awaits it; None: detached
    options: bytes | None = None  # the engine's own, opaque to the store
    fairness_key: str = ""  # whose share of its queue it takes


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class RunRow(Record):
    key: RunKey
    id: RunId
    workflow: str
    version: str
    queue: str
    priority: int
    status: Status
    epoch: int
    owner: WorkerId | None
    incarnation: str
    generation: int  # rises at continue_as
    input: bytes
    digest: bytes
    output: bytes | None  # the result, or the error
    created_at: Micros
    updated_at: Micros
    ended_at: Micros | None
    ready_at: Micros | None
    deadline_at: Micros | None
    session: str | None
    while_waiting: WhileWaiting
    parent: RunKey | None
    parent_step: str | None
    options: bytes | None
    strikes: int  # deaths of its worker since it last made progress
    reason: str | None  # why it is halted, or what it waits for
    resumes: int = 0  # how often somebody resumed it; each grants exhausted steps new attempts
    fairness_key: str = ""


class MailKind(StrEnum):
    PROMISE = "promise"
    MESSAGE = "message"
    CHILD = "child"
    CANCEL = "cancel"
    PAUSE = "pause"


class Mail(NamedTuple):
    """What outsiders put into a run's inbox; its owner journals the delivery."""

    id: int
    run: RunKey
    kind: MailKind
    name: str
    payload: bytes | None
    at: Micros
    failed: bool = False  # payload is an error (a child's)


class PromiseRow(NamedTuple):
    run: RunKey
    name: str
    key: str
    kind: Literal["promise", "approval"]
    type: str  # what an answer must look like, in words the codec understands
    prompt: bytes | None
    created_at: Micros
    resolved: bool = False


class WorkerRow(NamedTuple):
    id: WorkerId
    host: str
    pid: int
    process_started: str  # tells a reused pid from the old process
    started_at: Micros
    lease_seconds: float
    lease_left_seconds: float = 0.0  # as the store's own steady clock counts
    note: str = ""


class ScheduleRow(NamedTuple):
    """What is started at which ticks."""

    name: str
    workflow: str
    input: bytes
    digest: bytes
    options: bytes | None  # of its runs; the engine's own, opaque to the store
    cron: str  # or an interval, see engine/ticks.py
    zone: str
    catch_up: CatchUp  # what becomes of ticks that nobody was there for
    next_at: Micros | None  # None: there is no further tick
    updated_at: Micros  # rises with each change that is not a tick
    paused: bool = False
    last_at: Micros | None = None  # the last tick that was made
    last_run: RunId | None = None


class QueueRow(NamedTuple):
    """What was declared of a queue (None: no such limit), and how busy it is."""

    name: str
    concurrency: int | None = None  # runs in memory at once, of all workers together
    per_worker: int | None = None  # the same, of each worker
    rate_count: int | None = None  # first claims per rate_micros
    rate_micros: Micros | None = None
    rate_burst: int = 1
    next_at: Micros = 0  # how far its rate is used up; see store/pace.py
    paused: bool = False
    running: int = 0
    ready: int = 0  # runs that are due, those behind others of their session included
    oldest: Micros | None = None  # since when the first of them is


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RunFilter(FrozenRecord):
    """Which runs `list` shows; empty fields do not restrict."""

    status: frozenset[Status] = field(default_factory=frozenset)
    workflow: str | None = None
    session: str | None = None
    queue: str | None = None
    id_prefix: str = ""
    created_after: Micros | None = None
    created_before: Micros | None = None
    parent: RunId | None = None
    limit: int = 100
    newest_first: bool = True
