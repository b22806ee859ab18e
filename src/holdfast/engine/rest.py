"""When a run that only waits leaves memory, and how its tasks are unwound then.

A run may leave when its body is quiet, no step is at work and no thread is busy: all that its tasks
await are durable waits, and no step that waits has set a timer, which would be gone. Whether a task
awaits plain I/O cannot be known for sure (a socket and an asyncio.Event both look like a bare
future), so in case of doubt the run stays in memory for longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.clock import NEVER, Micros
from holdfast.engine import trouble
from holdfast.engine.awaited import is_clear, is_signal
from holdfast.engine.submission import are_at_work
from holdfast.errors import Suspended
from holdfast.store.base import Suspend
from holdfast.types import Kind, Status

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution
    from holdfast.engine.loop import LoopHooks


LATE_SECONDS = 0.05
"""A timer that is due has yet to go off: the loop is busy with something else. It is looked for
again after so long."""


STRANGE_SECONDS = 1.0
"""A run of which such threads are blocked is looked at again after so long."""


def consider(run: Execution, *, lingered: bool = False) -> None:
    """Called whenever the run's body has come to rest: suspends it if that is right now."""
    if not run.waits and not run.pausing:
        return
    if not is_quiet(run) or trouble.is_overdue(run):
        if run.submissions.strangers and run.resting is None and not run.closed:
            # Of threads that the engine was not told of, nobody tells it when they end.
            run.resting = run.call_later(STRANGE_SECONDS, lambda: _look_again(run))
        return
    surely_waiting = only_waits(run)
    if run.executing and not surely_waiting:
        return
    if run.pausing:
        _suspend(run)
        return
    delay, real = _stay(run, surely_waiting), real_seconds_left(run)
    if not real and (delay <= 0 or lingered):
        _suspend(run)
    elif run.resting is None:
        run.resting = run.call_later(max(delay, real), lambda: _lingered(run))


def real_seconds_left(run: Execution) -> float:
    """How long timers run on that steps have set while they wait. Time in steps is real, and begins
    anew with them: out of memory, a time-out would never come."""
    frames = {wait.claim.scope.frame for wait in run.waits}
    until = max((frame.runs_until() for frame in frames if frame.key), default=0.0)
    return max(LATE_SECONDS, until - run.host.hooks.real_time()) if until else 0.0


def is_quiet(run: Execution) -> bool:
    """Has the body come to rest, and all threads, with everything durable? Steps may still be at
    work on the event loop."""
    if run.closed or run.suspending or not run.live or run.task is None or run.task.done():
        return False
    if run.inbox.due:
        return False  # to suspend would be refused again
    # Threads that the engine knows nothing of count only while they are blocked in a durable call:
    # below nothing is nothing.
    busy = run.root.ready or run.root.arrived or run.threads > 0
    return not busy and run.journal.durable and not are_at_work(run)


def _stay(run: Execution, surely_waiting: bool) -> float:
    """Seconds to stay in memory from now on."""
    settings = run.host.settings
    if _is_due_soon(run):
        return (settings.memory_wait + settings.unsure_wait) / 1e6
    if _parked(run):
        return 0.0  # somebody should hear of it
    if not surely_waiting:
        return settings.unsure_wait / 1e6
    if all(wait.due_at is not None for wait in run.waits):
        return 0.0
    return settings.memory_wait / 1e6


def _lingered(run: Execution) -> None:
    run.resting = None
    consider(run, lingered=not _is_due_soon(run))


def _look_again(run: Execution) -> None:
    run.resting = None
    consider(run)


def _is_due_soon(run: Execution) -> bool:
    """Would it be back in memory in a moment?"""
    due = next_due(run)
    return due is not None and due - run.host.clock.now() <= run.host.settings.memory_wait


def next_due(run: Execution) -> int | None:
    due = [wait.due_at for wait in run.waits if wait.due_at is not None]
    if run.row.deadline_at is not None and not run.cancelled:
        due.append(run.row.deadline_at)
    return min(due, default=None)


def _suspend(run: Execution) -> None:
    if run.resting is not None:
        run.resting.cancel()
        run.resting = None
    how: tuple[Micros | None, int, str, Status]
    if run.pausing:
        how = (None, run.inbox.seen, "paused by hand", Status.PAUSED)
    elif parked := _parked(run):
        how = (_parked_until(run), run.inbox.seen, parked, Status.PARKED)
    else:
        how = (next_due(run), run.inbox.seen, waiting_for(run), Status.WAITING)
    run.then = Suspend(*how, unwinding=run.cancelled)
    run.suspending = True
    run.host.mark(run)


def _parked(run: Execution) -> str | None:
    """Why the run is to be parked: a step of it has used up its tries."""
    out_of_tries = (w.label for w in run.waits if w.kind is Kind.ATTEMPT and w.due_at is None)
    return next(out_of_tries, None)


def _parked_until(run: Execution) -> Micros | None:
    """A step without tries is one of the things a run waits for: the others may come first, and
    decide a race with it or time it out. None: there are no others."""
    others = any(wait.kind is not Kind.ATTEMPT or wait.due_at is not None for wait in run.waits)
    return (next_due(run) or NEVER) if others else None


def waiting_for(run: Execution) -> str:
    labels = list(dict.fromkeys(wait.label for wait in run.waits))
    more = f" and {len(labels) - 5} more" if len(labels) > 5 else ""
    return ", ".join(labels[:5]) + more


def only_waits(run: Execution) -> bool:
    """Is every task of a quiet run blocked in a durable wait, in another task, or in a thread?"""
    if run.ready_inside:
        return False
    durable = {wait.future for wait in run.waits} | run.transparent
    for wait in run.waits:
        frame = wait.claim.scope.frame
        has_mail = wait.mail_name is not None and not wait.ready
        if has_mail or frame.arrived or wait.claim.key in frame.asked:
            return False  # it is about to be delivered, or will be in a moment
        covers = getattr(wait.future, "covers", None)
        if covers is not None:
            durable.add(covers)
    durable.update(run.submissions)  # none of these is at work
    tasks = (task for task in run.tasks if not task.done())
    unclear = (task for task in tasks if not is_clear(task, durable, run.tasks))
    return all(is_signal(task, run.tasks) for task in unclear)


# Unwinding


def let_go(run: Execution) -> None:
    """The run has left. What it and these know of each other would otherwise be left to the garbage
    collector."""
    run.inbox.let_go()
    run.tasks.clear()
    run.task = None
    run.session = None
    del run.root


def unwind(tasks: Iterable[asyncio.Task[Any]], hooks: LoopHooks) -> None:
    """Lets the tasks go; those that do not await the run itself are cancelled a moment later."""
    hooks.soon(_cancel_leftovers, list(tasks), 4, hooks)


def _cancel_leftovers(tasks: list[asyncio.Task[Any]], rounds: int, hooks: LoopHooks) -> None:
    alive = []
    for task in tasks:
        if task.done():
            consume(task)
        else:
            alive.append(task)
    if not alive:
        return
    if rounds:
        hooks.soon(_cancel_leftovers, alive, rounds - 1, hooks)
        return
    for task in alive:
        task.add_done_callback(consume, context=contextvars.Context())
        task.cancel()


def consume(future: Any) -> None:
    """Marks a future's exception as seen, so that asyncio does not log it."""
    if asyncio.isfuture(future) and future.done() and not future.cancelled():
        error = future.exception()
        if isinstance(error, Suspended):
            # From Python 3.12 on a task keeps the traceback beside the error, until it is asked.
            with contextlib.suppress(Suspended):
                future.result()
            forget_way(error)


def forget_way(error: Suspended) -> None:
    """A traceback holds frames, which hold what they awaited, which holds the error: only the
    garbage collector would free them. A step that the error left has raised it anew."""
    found: BaseException | None = error
    while found is not None and found.__traceback__ is not None:
        found.__traceback__ = None
        found = found.__context__
