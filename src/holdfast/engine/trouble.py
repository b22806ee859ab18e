"""Bodies that go wrong without raising: they wait for nothing on record, or never come to rest."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from holdfast import codec
from holdfast.errors import BodySpins, DeadlineExceeded
from holdfast.store.base import End, Suspend
from holdfast.types import Entry, Kind, Status

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution

log = logging.getLogger("holdfast")

STARVED_SECONDS = 5.0
"""How long a replay waits for a recorded entry to be asked for while new steps are held."""


ANY_MAIL = 1 << 62
"""Seen, for a run that is to halt whatever its mail says."""


def cancelled_from_outside(run: Execution) -> bool:
    """Was the body's task cancelled by something that is no part of the run (a loop that is shut
    down)? Then the run is not over; somebody else may go on with it."""
    if run.task is None or not run.task.cancelling() or not run.task.from_outside:
        return False
    log.warning("the task of run %r was cancelled from outside", run.row.id)
    run.evict()
    return True


def unwritable(run: Execution, error: Exception) -> None:
    """The store cannot keep what the run has to write. Nobody else could go on with it, either."""
    log.error("run %r cannot go on: %s", run.row.id, error)
    run.journal.forget_unwritten()
    run.new_promises.clear()
    if run.session is not None:
        run.session.unsent.clear()
    if not run.closed:
        run.close()
    if run.halting is None:
        leave(run, Suspend(None, run.inbox.seen, str(error), Status.PARKED))
    else:  # not even that it ends can be written
        run.then = Suspend(None, ANY_MAIL, str(error), Status.PARKED, unwinding=True)
        run.host.mark(run)


def leave(run: Execution, halting: Suspend) -> None:
    """The run's body cannot go on, so the run halts; but if somebody cancelled it or its deadline
    has passed, that is its end: there is nobody left who could unwind."""
    run.halting = halting
    if run.inbox.cancel_wanted:
        run.then = End(Status.CANCELLED, None)
    elif is_overdue(run):
        run.then = too_late(run)
    else:
        how = (halting.ready_at, run.inbox.seen, halting.reason, halting.status)
        run.then = Suspend(*how, unwinding=run.cancelled)
    if isinstance(run.then, End):
        run.journal.append(Entry(0, Kind.END, "", run.tick(), failed=True))
    run.host.mark(run)


def heard(run: Execution, refused: Suspend) -> bool:
    """The run could not halt because of mail. False: that has yet to be read."""
    run.then = None
    if run.inbox.seen > refused.mail_seen:
        leave(run, refused)
    return run.then is not None


def is_overdue(run: Execution) -> bool:
    """Has its deadline passed, and has its body not been told yet?"""
    at = run.row.deadline_at
    return at is not None and at <= run.host.clock.now() and not run.cancelled


def too_late(run: Execution) -> End:
    passed = DeadlineExceeded(f"run {run.row.id!r} did not end before its deadline")
    return End(Status.FAILED, codec.encode_error(passed, what=""))


def starved(run: Execution) -> None:
    """The replay has been quiet for a while, and nobody asks for the next recorded entry."""
    if run.closed or not run.root.order:
        return
    entry = run.root.order[0]
    if run.threads or entry.key in run.root.asked:
        run.starved()
    elif run.root.held or run.root.asked or run.root.arrived:
        asked = ", ".join(wait.claim.key for wait in run.waits) or "something not on record"
        why = f"{entry.key} was recorded, and nobody asks for it"
        run.halt(Status.PARKED, str(run.journal.diverged(asked, why, run.root.order)))
    else:
        log.warning(
            "run %r: the replay waits for the code to ask for %s; plain I/O in a workflow's body "
            "is repeated on every replay: make it a step",
            run.row.id,
            entry.key,
        )
        run.starved()


def spinning(run: Execution) -> BodySpins:
    where = _location(asyncio.current_task(run.loop) or run.task)
    return BodySpins(
        f"run {run.row.id!r} never comes to rest, so nothing can be delivered to it: {where}. "
        "Wait for something (a step, an event, a sleep longer than 0) instead of polling."
    )


def _location(task: asyncio.Task[Any] | None) -> str:
    """Where the task is, as far down as its code is neither asyncio's nor ours."""
    found = "its tasks wake one another for ever"
    inner: Any = task.get_coro() if task is not None else None
    while (frame := getattr(inner, "cr_frame", None)) is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in ("asyncio", "holdfast"):
            code = frame.f_code
            found = f"{code.co_filename}, line {frame.f_lineno}, in {code.co_name}"
        inner = inner.cr_await
    return found
