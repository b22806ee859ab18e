"""The public names are a promise: this list changes on purpose, with a line in the changelog."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
here
idempotency_key
now
on_leave
once
placed
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
waits_within
workflow
""".split()


def test_the_public_names_are_these() -> None:
    assert sorted(holdfast.__all__) == PUBLIC


def test_every_public_name_is_there() -> None:
    assert [name for name in PUBLIC if not hasattr(holdfast, name)] == []


def test_no_public_name_hides_a_builtin() -> None:
    assert [name for name in PUBLIC if name in dir(__builtins__)] == []


RARELY_USED = """
email.utils
holdfast.client.explain
holdfast.client.rerun
holdfast.client.sync
holdfast.codec.fit
holdfast.engine.lint
holdfast.engine.stacks
holdfast.limits
holdfast.store.moving
holdfast.store.sqlite_upkeep
holdfast.worker.undurable
tempfile
""".split()


def test_a_recovery_does_not_wait_for_the_import_of_what_it_hardly_ever_needs() -> None:
    code = "import sys, holdfast; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    ).stdout.split()
    assert "holdfast.engine.step" in loaded
    assert [name for name in RARELY_USED if name in loaded] == []


def test_what_is_imported_at_its_first_use_is_like_any_other_name() -> None:
    from holdfast import Limit, Queue, Rate, limits

    assert (Limit, Queue, Rate) == (limits.Limit, limits.Queue, limits.Rate)
    with pytest.raises(AttributeError, match="has no attribute 'Quue'"):
        holdfast.Quue  # type: ignore[attr-defined]  # noqa: B018
