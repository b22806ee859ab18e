"""Holdfast: AI agents that finish, whatever dies.

What most programs do not use is imported at its first use: the rest counts in every recovery.
"""

from typing import TYPE_CHECKING, Any

from holdfast.client import Holdfast, Run
from holdfast.clock import FakeClock, SystemClock
from holdfast.codec import register
from holdfast.engine.awaited import waits_within
from holdfast.engine.child import child, start
from holdfast.engine.context import current_run, here, on_leave, placed, scratch
from holdfast.engine.preview import Preview
from holdfast.engine.promise import Decision, approval, promise
from holdfast.engine.race import race
from holdfast.engine.schedule import Schedule, tick
from holdfast.engine.session import session
from holdfast.engine.stash import recovered, stash
from holdfast.engine.step import idempotency_key, step
from holdfast.engine.timer import sleep, sleep_until
from holdfast.engine.value import now, once, random, uuid4
from holdfast.engine.wait import continue_as, receive
from holdfast.engine.workflow import Workflow, remote, workflow
from holdfast.errors import (
    AlreadyEnded,
    AlreadyResolved,
    BadArguments,
    BadSchedule,
    BadValue,
    BodySpins,
    ContextOverflow,
    DeadlineExceeded,
    Diverged,
    HoldfastError,
    IdRetired,
    IdReused,
    LeaseLost,
    NoJournal,
    NotDecodable,
    NotEncodable,
    NotInRun,
    NotOpen,
    NotResumable,
    PayloadTooLarge,
    PromiseReused,
    ReplayWarning,
    RequestError,
    RunCancelled,
    RunError,
    RunFailed,
    RunHalted,
    SchemaMismatch,
    SessionBusy,
    StepFailed,
    StepOnEventLoop,
    StepTimedOut,
    StoreCorrupt,
    StoreError,
    StoreMoved,
    StoreUnavailable,
    Suspended,
    Terminal,
    TooDeep,
    UnknownPromise,
    UnknownQueue,
    UnknownRun,
    UnknownSchedule,
    UnknownWorkflow,
    Unsupported,
    WrongEventLoop,
)
from holdfast.retry import Retry
from holdfast.types import RunFilter, Status
from holdfast.worker.options import Retention, WorkerOptions

if TYPE_CHECKING:
    from holdfast.limits import Limit, Queue, Rate
else:

    def __getattr__(name: str) -> Any:
        if name not in ("Limit", "Queue", "Rate"):
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        from holdfast import limits

        return getattr(limits, name)


__all__ = [
    "AlreadyEnded",
    "AlreadyResolved",
    "BadArguments",
    "BadSchedule",
    "BadValue",
    "BodySpins",
    "ContextOverflow",
    "DeadlineExceeded",
    "Decision",
    "Diverged",
    "FakeClock",
    "Holdfast",
    "HoldfastError",
    "IdRetired",
    "IdReused",
    "LeaseLost",
    "Limit",
    "NoJournal",
    "NotDecodable",
    "NotEncodable",
    "NotInRun",
    "NotOpen",
    "NotResumable",
    "PayloadTooLarge",
    "Preview",
    "PromiseReused",
    "Queue",
    "Rate",
    "ReplayWarning",
    "RequestError",
    "Retention",
    "Retry",
    "Run",
    "RunCancelled",
    "RunError",
    "RunFailed",
    "RunFilter",
    "RunHalted",
    "Schedule",
    "SchemaMismatch",
    "SessionBusy",
    "Status",
    "StepFailed",
    "StepOnEventLoop",
    "StepTimedOut",
    "StoreCorrupt",
    "StoreError",
    "StoreMoved",
    "StoreUnavailable",
    "Suspended",
    "SystemClock",
    "Terminal",
    "TooDeep",
    "UnknownPromise",
    "UnknownQueue",
    "UnknownRun",
    "UnknownSchedule",
    "UnknownWorkflow",
    "Unsupported",
    "WorkerOptions",
    "Workflow",
    "WrongEventLoop",
    "approval",
    "child",
    "continue_as",
    "current_run",
    "here",
    "idempotency_key",
    "now",
    "on_leave",
    "once",
    "placed",
    "promise",
    "race",
    "random",
    "receive",
    "recovered",
    "register",
    "remote",
    "scratch",
    "session",
    "sleep",
    "sleep_until",
    "start",
    "stash",
    "step",
    "tick",
    "uuid4",
    "waits_within",
    "workflow",
]
