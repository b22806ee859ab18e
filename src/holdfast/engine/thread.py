"""Threads of a run: sync steps, `def` workflows, and plain work sent to an executor.

A thread makes a durable call by asking the event loop to do it and blocking until that is done. A
sync step's body runs in the thread that called it, so that thread-local things (connections,
loggers) are where it expects them, unless it has a time-out. Threads cannot be stopped: one that is
busy when its run leaves memory goes on until its next durable call, which raises Suspended.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import queue
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from holdfast.engine.context import Scope, current, enter_submission, leave_submission
from holdfast.engine.depth import refuse_if_too_deep
from holdfast.engine.frame import Wait
from holdfast.engine.loop import task_name
from holdfast.engine.preview import after, read_in
from holdfast.engine.rest import consume
from holdfast.engine.submission import Submission, innermost, next_item
from holdfast.errors import Suspended, Terminal
from holdfast.types import Entry, Kind

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution

Work = Callable[[], Any]
InThread = Callable[[Work], Awaitable[Any]]
"""Runs sync work in a thread on behalf of a coroutine."""


class _Job:
    """Work the event loop wants done by the blocked thread."""

    __slots__ = ("future", "work")

    def __init__(self, work: Work, future: asyncio.Future[Any]) -> None:
        self.work, self.future = work, future


def portal(where: Scope, call: Callable[[InThread], Coroutine[Any, Any, Any]]) -> Any:
    """Called in a thread: runs `call` as part of the run, on its event loop, and returns its
    result."""
    run = where.frame.run
    if run.closed:
        raise Suspended
    box: queue.SimpleQueue[_Job | asyncio.Task[Any] | None] = queue.SimpleQueue()
    context = contextvars.copy_context()
    context.run(current.set, where)
    enter = functools.partial(_enter, where, innermost(run), call, box, context)
    run.loop.call_soon_threadsafe(enter, context=contextvars.Context())
    while True:
        item = next_item(box)
        if isinstance(item, _Job):
            _do(run.loop, item)
        elif item is None:
            raise Suspended
        else:
            try:
                return item.result()
            finally:
                del item  # it has the error that has this frame


def _enter(
    where: Scope,
    submission: Submission | None,
    call: Callable[[InThread], Coroutine[Any, Any, Any]],
    box: queue.SimpleQueue[_Job | asyncio.Task[Any] | None],
    context: contextvars.Context,
) -> None:
    run = where.frame.run
    if run.closed:
        box.put(None)
        return

    def in_thread(work: Work) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = run.loop.create_future()
        box.put(_Job(work, future))
        return future

    async def bracketed() -> Any:
        # The thread counts as busy again in the very step in which the call ends: there is no gap
        # in which the run would look idle.
        try:
            return await call(in_thread)
        finally:
            run.portals.discard(box)
            run.threads += 1
            if submission is not None:
                submission.blocked = False
            else:
                run.submissions.strangers -= 1
                where.frame.blocked -= 1
            if run.portal_task is asyncio.current_task(run.loop):
                run.portal_task = None

    run.portals.add(box)
    run.threads -= 1
    if submission is not None:
        submission.blocked = True
    else:
        run.submissions.strangers += 1
        where.frame.blocked += 1
    task: asyncio.Task[Any] = context.run(lambda: asyncio.Task(bracketed(), loop=run.loop))
    run.add_task(task)
    if run.sync_body:
        run.portal_task = task
        if run.cancel_pending:
            run.cancel_pending = False
            task.cancel()
    task.add_done_callback(box.put, context=contextvars.Context())


def _do(loop: asyncio.AbstractEventLoop, job: _Job) -> None:
    try:
        value = job.work()
    except BaseException as error:
        loop.call_soon_threadsafe(_settle, job.future, None, error)
    else:
        loop.call_soon_threadsafe(_settle, job.future, value, None)


def own_thread(loop: asyncio.AbstractEventLoop, work: Work) -> asyncio.Future[Any]:
    """Runs work in a thread made for it. A pool might have none left but those that wait for it."""
    job = _Job(work, loop.create_future())

    def do() -> None:
        with contextlib.suppress(RuntimeError):  # it took longer than the event loop lived
            _do(loop, job)

    threading.Thread(target=do, name="holdfast-step", daemon=True).start()
    return job.future


def contained(work: Work) -> Any:
    """What ends a process is an error like any other in a thread, or in another process: it is not
    the wish of whoever sent a signal, whose handlers run on the main thread, and all other runs
    would end with it."""
    try:
        return work()
    except (KeyboardInterrupt, SystemExit) as error:
        raise Terminal(
            f"{error!r} was raised in a thread or a pool, and does not end this process"
        ) from error


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError("a step raised StopIteration"))
    else:
        future.set_exception(error)


async def sync_body(run: Execution, work: Work) -> Any:
    """The body of a `def` workflow: it has a thread to itself."""
    run.sync_body = True
    run.threads += 1
    context, submission = contextvars.copy_context(), Submission(run.root)

    def enter() -> Any:
        return submission.do(lambda: context.run(contained, work))

    future = run.host.hooks.run_in_executor(run.host.sync_executor, enter)
    run.submissions[future] = submission
    # The thread ends by itself, with Suspended when the run left before it: nobody waits for that.
    future.add_done_callback(consume, context=contextvars.Context())
    awaited = asyncio.shield(future)
    run.transparent.add(awaited)
    try:
        return await awaited
    finally:
        run.threads -= 1
        del run.submissions[future]
        run.transparent.discard(awaited)
        del awaited, future  # they have the error that has this frame


# Work that a body sends to an executor


def submit(
    where: Scope, executor: Any, func: Callable[..., Any], args: tuple[Any, ...]
) -> asyncio.Future[Any]:
    """What `loop.run_in_executor` does inside a run."""
    run = where.frame.run
    if run.closed:
        raise Suspended
    refuse_if_too_deep("a thread")
    hooks = run.host.hooks
    if isinstance(executor, ThreadPoolExecutor):
        _close_without_waiting(executor)
    func, args, kwargs = _unwrapped(func, args)
    step = getattr(func, "__holdfast_step__", None)
    if step is not None and not step.is_async:
        in_thread = functools.partial(hooks.run_in_executor, executor)
        return run.loop.create_task(step.invoke(where.claim(step.name), args, kwargs, in_thread))
    own = where.branch(_name(func))
    own.after = read_in(where)
    submission = Submission(where.frame)
    if executor is not None and not _shares_memory(executor):
        # Another process knows nothing of the run, and a run's context cannot be sent there.
        func = functools.partial(func, *args, **kwargs)
        real = _elsewhere(run, hooks.run_in_executor(executor, func))
        return _awaited(run, where, own, real, submission)
    work = functools.partial(
        _in_submission, where, own, contextvars.copy_context(), func, args, kwargs
    )
    real = hooks.run_in_executor(executor, submission.do, work)
    return _awaited(run, where, own, real, submission)


def _close_without_waiting(pool: ThreadPoolExecutor) -> None:
    """The end of `with ThreadPoolExecutor()` waits for its threads, and they may wait for the event
    loop. So a run's code that closes a pool on the loop goes on; its threads do, too."""
    if "shutdown" in vars(pool):
        return
    known = weakref.ref(pool)  # one that nobody closes ends when it is freed

    def shutdown(wait: bool = True, *, cancel_futures: bool = False) -> None:
        pool = known()
        if pool is not None:
            on_loop = asyncio._get_running_loop() is not None and current.get() is not None
            type(pool).shutdown(pool, wait and not on_loop, cancel_futures=cancel_futures)

    pool.shutdown = shutdown  # type: ignore[method-assign]


def _shares_memory(executor: Any) -> bool:
    """Its threads are in this interpreter; those of an InterpreterPoolExecutor (3.14) are not."""
    kinds = [kind.__name__ for kind in type(executor).__mro__]
    return isinstance(executor, ThreadPoolExecutor) and "InterpreterPoolExecutor" not in kinds


def _elsewhere(run: Execution, real: asyncio.Future[Any]) -> asyncio.Future[Any]:
    """What comes back from there may want to end this process, too."""
    future: asyncio.Future[Any] = run.loop.create_future()

    def returned(_: object) -> None:
        try:
            value = contained(real.result)
        except asyncio.CancelledError:
            future.cancel()
        except BaseException as error:
            _settle(future, None, error)
        else:
            _settle(future, value, None)

    def given_up(_: object) -> None:
        if future.cancelled():
            real.cancel()

    real.add_done_callback(returned, context=contextvars.Context())
    future.add_done_callback(given_up, context=contextvars.Context())
    return future


def _awaited(
    run: Execution, where: Scope, own: Scope, real: asyncio.Future[Any], submission: Submission
) -> asyncio.Future[Any]:
    run.threads += 1
    run.submissions[real] = submission
    if where.frame.key:
        real.add_done_callback(functools.partial(_returned, run), context=contextvars.Context())
        return real
    return _journaled(run, where, own, real)


def _journaled(
    run: Execution, where: Scope, own: Scope, real: asyncio.Future[Any]
) -> asyncio.Future[Any]:
    """Plain work runs again on replay; when it came back, relative to the rest, is in the
    journal."""
    claim = where.claim(f"thread:{own.path.rpartition('/')[2]}")
    future: asyncio.Future[Any] = run.loop.create_future()
    wait = Wait(Kind.THREAD, claim, future, decode=lambda _: real.result(), label="a thread")
    wait.ready = False
    recorded = run.journal.find(claim, Kind.THREAD)
    previews = read_in(where)
    run.wait_for(wait)
    future.add_done_callback(lambda _: run.done_waiting(wait), context=contextvars.Context())

    def returned(_: object) -> None:
        _returned(run, real)
        wait.ready = True
        if run.closed:
            consume(real)
            return
        if recorded is None:
            entry = Entry(0, Kind.THREAD, claim.key, run.tick(), position=claim.position)
            after(
                previews,
                lambda error: wait.fail(error) if error is not None else run.arrive(entry, wait),
            )
        elif not where.frame.ready:
            where.frame.pump()

    if recorded is not None:
        where.frame.ask(wait)
    real.add_done_callback(returned, context=contextvars.Context())
    return future


def _returned(run: Execution, real: asyncio.Future[Any]) -> None:
    run.threads -= 1
    del run.submissions[real]
    if run.waits:
        run.reconsider()  # perhaps nobody awaited it


def _in_submission(
    where: Scope,
    own: Scope,
    context: contextvars.Context,
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    enter_submission(where, own)
    try:
        return context.run(contained, functools.partial(func, *args, **kwargs))
    finally:
        leave_submission()


def _name(func: Callable[..., Any]) -> str:
    """What runs in the thread, seen through functools.partial and Context.run."""
    while isinstance(func, functools.partial):
        inside = isinstance(getattr(func.func, "__self__", None), contextvars.Context) and func.args
        func = func.args[0] if inside else func.func
    return task_name(func)


def _unwrapped(
    func: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Sees through what `asyncio.to_thread` makes of a call: partial(context.run, func, *args)."""
    if isinstance(func, functools.partial) and not args:
        inner = getattr(func.func, "__self__", None)
        if isinstance(inner, contextvars.Context) and func.args:
            target = func.args[0]
            if getattr(target, "__holdfast_step__", None) is not None:
                return target, func.args[1:], dict(func.keywords)
    return func, args, {}
