"""Every error Holdfast raises.

    HoldfastError
    ├── Terminal                  raised by users' steps and by Holdfast: never retried
    │   ├── NotEncodable          a value cannot be written to the journal
    │   ├── NotDecodable          a recorded value does not fit the type it is read as
    │   ├── PayloadTooLarge
    │   ├── ContextOverflow       a model was given more than it can read
    │   └── TooDeep               too many steps or calls within one another
    ├── Diverged                  the code asked for something else than the journal holds
    ├── BodySpins                 the workflow's body never comes to rest
    ├── NotInRun                  a durable call whose run got lost on the way
    ├── StepOnEventLoop           a sync step called on the event loop
    ├── StepFailed                stands in for an exception whose class is not loaded here
    ├── StepTimedOut              a step outlived its time-out (also a TimeoutError)
    ├── PromiseReused             one promise name, two places in the code
    ├── RunError                  how a run ended, for whoever awaits its result
    │   ├── RunFailed
    │   ├── RunCancelled
    │   ├── DeadlineExceeded
    │   └── RunHalted             parked or quarantined: somebody has to decide
    ├── RequestError              what a caller asked for cannot be done
    │   ├── UnknownWorkflow, UnknownRun, UnknownPromise, UnknownSchedule, UnknownQueue
    │   ├── BadArguments, BadValue, BadSchedule, IdReused
    │   ├── AlreadyResolved, AlreadyEnded, NotResumable, SessionBusy
    │   ├── NoJournal             the run has durability="none": it can only be awaited
    │   └── NotOpen, WrongEventLoop
    └── StoreError
        ├── LeaseLost             another worker owns the run now
        ├── StoreUnavailable      locked, full, read-only or out of reach
        ├── StoreCorrupt
        ├── SchemaMismatch
        ├── StoreMoved            it is elsewhere now, or on its way
        └── Unsupported           this platform or file system cannot do it

Control flow that must pass through users' ``except Exception`` derives from BaseException:

    Suspended                     the run leaves memory; let it pass

And one warning:

    ReplayWarning                 code that will not do the same on replay

A class's docstring is the text of an error raised without one.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """Holdfast could not do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class Terminal(HoldfastError):
    """The step failed for good; trying again cannot help."""


class NotEncodable(Terminal):
    """A value cannot be written to the journal."""


class NotDecodable(Terminal):
    """A recorded value does not fit the type it is read as."""


class PayloadTooLarge(Terminal):
    """A value is larger than a journal entry may be."""


class ContextOverflow(Terminal):
    """The model was given more than it can read; shorten what it is sent."""


class TooDeep(Terminal, RecursionError):
    """A durable call has too many steps, or calls of Python functions, around it."""


class Diverged(HoldfastError):
    """The workflow's code no longer asks for what its journal holds."""


class BodySpins(HoldfastError):
    """The workflow's body never comes to rest, so nothing can be delivered to it."""


class NotInRun(HoldfastError):
    """A durable call was made where its run cannot be found."""


class StepOnEventLoop(HoldfastError):
    """A sync step was called on the event loop; use `await asyncio.to_thread(step, ...)`."""


class StepFailed(HoldfastError):
    """A step failed with an exception whose class is not loaded in this process."""

    def __init__(self, message: str | None = None, *, type_name: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name


class StepTimedOut(HoldfastError, TimeoutError):
    """A step outlived its time-out."""


class PromiseReused(HoldfastError):
    """Two places in one run opened a promise of the same name."""


class RunError(HoldfastError):
    """A run did not end with a result."""


class RunFailed(RunError):
    """The run failed."""


class RunCancelled(RunError):
    """The run was cancelled."""


class DeadlineExceeded(RunError):
    """The run's deadline passed before it ended."""


class RunHalted(RunError):
    """The run has stopped until somebody resumes it."""


class RequestError(HoldfastError):
    """What was asked for cannot be done."""


class UnknownWorkflow(RequestError):
    """No workflow of this name is listed."""


class UnknownRun(RequestError):
    """There is no run of this id."""


class UnknownPromise(RequestError):
    """The run has no promise of this name."""


class UnknownSchedule(RequestError):
    """There is no schedule of this name."""


class UnknownQueue(RequestError):
    """There is no queue of this name."""


class BadArguments(RequestError):
    """The arguments do not fit the workflow's signature."""


class BadValue(RequestError):
    """The value does not fit the type that is awaited."""


class BadSchedule(RequestError):
    """A schedule's cron expression, interval or time zone makes no sense."""


class IdReused(RequestError):
    """This id belongs to a run that was started with other arguments."""


class IdRetired(RequestError):
    """The run of this id was deleted; the id is not free again yet."""


class AlreadyResolved(RequestError):
    """The promise was answered before; the first answer stands."""


class AlreadyEnded(RequestError):
    """The run has ended."""


class NotResumable(RequestError):
    """The run is not paused, parked or quarantined."""


class NoJournal(RequestError):
    """A run with durability="none" has no journal: its result can be awaited, and nothing else."""


class SessionBusy(RequestError):
    """The session has another run that has not ended: `on_busy="reject"` was asked for, or it was
    to be deleted."""


class NotOpen(RequestError):
    """The app is not open: use `async with app:` or `await app.open()`."""


class WrongEventLoop(RequestError):
    """The app was opened on another event loop."""


class StoreError(HoldfastError):
    """The store could not do what was asked."""


class LeaseLost(StoreError):
    """Another worker owns this run now; nothing was written."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or written to."""


class StoreCorrupt(StoreError):
    """The store's file is damaged or is not a Holdfast store."""


class SchemaMismatch(StoreError):
    """The store's schema is of another version."""


class StoreMoved(StoreError):
    """The store has moved elsewhere, or is on its way; nothing was written."""


class Unsupported(StoreError):
    """This platform or file system cannot do it."""


class ReplayWarning(UserWarning):
    """A workflow reads something that will be different when it is replayed."""


class Suspended(BaseException):
    """The run is leaving memory. Do not catch this: let it pass, and the run comes back here."""
