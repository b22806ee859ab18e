"""The public names are a promise: this list changes on purpose, with a line in the changelog."""

from __future__ import annotations

import holdfast

PUBLIC = """
AlreadyEnded
AlreadyResolved
BadArguments
BadSchedule
BadValue
BodySpins
ContextOverflow
DeadlineExceeded
Decision
Diverged
FakeClock
Holdfast
HoldfastError
IdRetired
IdReused
LeaseLost
Limit
NoJournal
NotDecodable
NotEncodable
NotInRun
NotOpen
NotResumable
PayloadTooLarge
Preview
PromiseReused
Queue
Rate
ReplayWarning
RequestError
Retention
Retry
Run
RunCancelled
RunError
RunFailed
RunFilter
RunHalted
Schedule
SchemaMismatch
SessionBusy
Status
StepFailed
StepOnEventLoop
StepTimedOut
StoreCorrupt
StoreError
StoreMoved
StoreUnavailable
Suspended
SystemClock
Terminal
TooDeep
UnknownPromise
UnknownQueue
UnknownRun
UnknownSchedule
UnknownWorkflow
Unsupported
WorkerOptions
Workflow
WrongEventLoop
approval
child
continue_as
current_run
idempotency_key
now
on_leave
once
promise
race
random
receive
recovered
register
remote
scratch
session
sleep
sleep_until
start
stash
step
tick
uuid4
workflow
""".split()


def test_the_public_names_are_these() -> None:
    assert sorted(holdfast.__all__) == PUBLIC


def test_every_public_name_is_there() -> None:
    assert [name for name in PUBLIC if not hasattr(holdfast, name)] == []


def test_no_public_name_hides_a_builtin() -> None:
    assert [name for name in PUBLIC if name in dir(__builtins__)] == []
