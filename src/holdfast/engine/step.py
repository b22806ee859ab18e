"""Steps: journaled units of work, with their retries.

`@step` keeps a function's colour and signature. Outside any run a step is the plain function. Inside one,
a call is looked up in the journal; if it is not there, it is executed once everything before it is durable,
and its outcome is journaled before anything after it. A step is executed at least once: a crash between its
effect and its commit executes it again, under the same idempotency key.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import hashlib
import inspect
import random
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, overload

from holdfast import codec
from holdfast import retry as retries
from holdfast.clock import Micros, to_datetime, to_micros
from holdfast.engine import hosts
from holdfast.engine.context import Claim, Scope, current, scope
from holdfast.engine.execution import Execution
from holdfast.engine.frame import Frame, Wait
from holdfast.engine.loop import LoopHooks
from holdfast.engine.thread import InThread, portal
from holdfast.errors import NotInRun, StepOnEventLoop, StepTimedOut, Suspended
from holdfast.retry import Retry
from holdfast.types import Entry, Kind

P = ParamSpec("P")
R = TypeVar("R")

_DEFAULT_RETRY = Retry()


@overload
def step(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout: timedelta | None = None,
    journal_input: bool = True,
    exclude: Sequence[str] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def step(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Makes a function a step.

    name: its name in the journal, if not the function's own; keep it when you rename the function.
    retry: what to do when it fails; by default what can succeed later is retried, see docs/retries.md.
    timeout: how long one attempt may take.
    journal_input: keep the arguments in the journal (their digest is kept always).
    exclude: parameters that are no part of the step's identity and are not journaled (clients, handles).
    """
    if fn is None:
        return lambda fn: Step(fn, **options).function
    return Step(fn).function


class Step:
    """What stands behind a step function."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        retry: Retry | None = None,
        timeout: timedelta | None = None,
        journal_input: bool = True,
        exclude: Sequence[str] = (),
    ) -> None:
        if not callable(fn):
            raise TypeError(f"@holdfast.step is for functions, not for {fn!r}")
        if timeout is not None and timeout <= timedelta(0):
            raise ValueError(f"a step's timeout must be longer than nothing, not {timeout}")
        self.fn = fn
        self.name = name or fn.__name__
        self.retry = retry or _DEFAULT_RETRY
        self.timeout_seconds = timeout.total_seconds() if timeout else None
        self.journal_input = journal_input
        self.is_async = inspect.iscoroutinefunction(fn)
        self._exclude = frozenset(exclude) | _receiver(fn)
        self._names = _parameters(fn)
        self._result: Any = codec  # resolved at first use: annotations may name later classes
        self.function = self._wrap()

    def _wrap(self) -> Callable[..., Any]:
        @functools.wraps(self.fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            where = scope()
            if where is None:
                self._refuse_if_lost()
                return self.fn(*args, **kwargs)
            if self.is_async:
                return self.invoke(where.claim(self.name), args, kwargs, None)
            if _on_event_loop():
                raise StepOnEventLoop(
                    f"the sync step {self.name!r} was called on the event loop, which it would block: "
                    f"use `await asyncio.to_thread({self.name}, ...)`"
                )
            claim = where.claim(self.name)
            return portal(where, lambda in_thread: self.invoke(claim, args, kwargs, in_thread))

        if self.is_async:
            _mark_coroutine_function(call)
        call.__holdfast_step__ = self  # type: ignore[attr-defined]
        return call

    def _refuse_if_lost(self) -> None:
        """In a process that executes runs, a bare thread has most likely lost its run."""
        if hosts.any_open() and not _on_event_loop():
            thread = threading.current_thread()
            if thread is not threading.main_thread():
                raise NotInRun(
                    f"step {self.name!r} was called in thread {thread.name!r}, which belongs to no run: "
                    "start threads with `asyncio.to_thread`, or run their work in a copy of the context "
                    "(`contextvars.copy_context().run(...)`)"
                )

    # One call

    async def invoke(
        self, claim: Claim, args: tuple[Any, ...], kwargs: dict[str, Any], in_thread: InThread | None
    ) -> Any:
        frame = claim.scope.frame
        run = frame.run
        if run.closed:
            raise Suspended
        if asyncio.get_running_loop() is not run.loop:
            raise NotInRun(
                f"step {self.name!r} was awaited on another event loop than its run's: "
                "await it in the workflow itself"
            )
        what = f"step {claim.key!r} of run {run.row.id!r}"
        payload = codec.encode(self._identity(args, kwargs), what=f"the arguments of {what}", loose=True)
        digest = codec.digest(payload)
        recorded = run.journal.find(claim, Kind.STEP, digest)
        if recorded is not None:
            return await replay(run, frame, claim, recorded, self._decode(what))
        attempt = Attempt(run, frame, claim, what, self)
        attempt.input = payload if self.journal_input else None
        attempt.digest = digest
        return await attempt.until_done(args, kwargs, in_thread)

    def _identity(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | dict[str, Any]:
        if not kwargs and not self._exclude:
            return list(args)
        named: dict[str, Any] = {}
        for index, value in enumerate(args):
            name = self._names[index] if index < len(self._names) else f"*{index}"
            if name not in self._exclude:
                named[name] = value
        named.update({k: v for k, v in kwargs.items() if k not in self._exclude})
        return named

    def result_type(self) -> Any:
        if self._result is codec:
            self._result = codec.hints(self.fn)[1]
        return self._result

    def _decode(self, what: str) -> Callable[[Entry], Any]:
        def decode(entry: Entry) -> Any:
            if entry.failed:
                raise codec.decode_error(entry.output or b"null")
            return codec.decode(entry.output or b"null", self.result_type(), what=what)

        return decode


async def replay(
    run: Execution, frame: Frame, claim: Claim, entry: Entry, decode: Callable[[Entry], Any]
) -> Any:
    """Waits for the recorded completion's turn."""
    if frame.ready == 1 and frame.order and frame.order[0] is entry and not run.closed:
        # Nothing else can run and this is next: it is delivered by simply going on.
        frame.order.popleft()
        run.pass_time(entry.at)
        return decode(entry)
    while True:
        future: asyncio.Future[Any] = run.loop.create_future()
        wait = Wait(entry.kind, claim, future, decode=decode)
        run.wait_for(wait)
        frame.ask(wait)
        try:
            return await future
        except asyncio.CancelledError:
            # A step that is on record with an outcome outlived its cancellation when it was executed.
            outlived = entry.kind is Kind.STEP and future.cancelled()
            if outlived and frame.order and entry in frame.order and not run.closed:
                continue
            raise
        finally:
            run.done_waiting(wait)


class Attempt:
    """The tries at one step, from the first to its outcome."""

    __slots__ = ("claim", "digest", "frame", "input", "number", "run", "started_at", "step", "what")

    def __init__(self, run: Execution, frame: Frame, claim: Claim, what: str, step: Step) -> None:
        self.run, self.frame, self.claim, self.what, self.step = run, frame, claim, what, step
        self.input: bytes | None = None
        self.digest: bytes | None = None
        self.number = 0
        self.started_at: Micros = 0

    async def until_done(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], in_thread: InThread | None
    ) -> Any:
        run, step = self.run, self.step
        log = run.journal.logs.get(self.frame.key)
        last = log.attempts.get(self.claim.key) if log is not None else None
        if last is not None:
            await run.may_start(self.frame)
            self.number = last.attempt
            await self._pause(last.due_at)
        while True:
            await run.may_start(self.frame)
            self.number += 1
            self.started_at = run.tick()
            try:
                value = await self._execute(args, kwargs, in_thread)
                output = codec.encode(value, annotation=step.result_type(), what=self.what)
            except asyncio.CancelledError:
                self._abandon()
                raise
            except Exception as error:
                if run.closed:
                    raise Suspended from None
                if await self._failed(error):
                    continue
                if step.retry.fallback is not None:
                    value = await self._execute(args, kwargs, in_thread, step.retry.fallback)
                    output = codec.encode(value, annotation=step.result_type(), what=self.what)
                else:
                    return await self._complete(None, error)
            return await self._complete((value, output), None)

    async def _execute(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        in_thread: InThread | None,
        fn: Callable[..., Any] | None = None,
    ) -> Any:
        """Runs the body in a frame and a context of its own."""
        run, key = self.run, self.claim.key
        body = Scope(Frame(run, key, run.journal.order_of(key), self.frame), key)
        context = contextvars.copy_context()
        context.run(current.set, body)
        fn = fn or self.step.fn
        run.executing += 1
        try:
            if inspect.iscoroutinefunction(fn):
                coro = context.run(fn, *args, **kwargs)
                if self.step.timeout_seconds is not None:
                    coro = self._limited(coro)
                return await in_frame(run.host.hooks, coro, context, self.claim.scope, body)
            assert in_thread is not None or fn is not self.step.fn
            if in_thread is None:
                return context.run(fn, *args, **kwargs)
            work = functools.partial(context.run, fn, *args, **kwargs)
            return await self._in_thread(in_thread(work))
        finally:
            run.executing -= 1
            body.frame.close()
            if run.closed:
                # noqa: the body may have swallowed Suspended; its outcome counts for nothing
                raise Suspended

    async def _limited(self, coro: Coroutine[Any, Any, Any]) -> Any:
        limit = asyncio.timeout(self.step.timeout_seconds)
        try:
            async with limit:
                return await coro
        except TimeoutError as error:
            if limit.expired():
                raise self._timed_out() from error
            raise

    async def _in_thread(self, work: Awaitable[Any]) -> Any:
        """A thread cannot be stopped: on a time-out its outcome is dropped."""
        if self.step.timeout_seconds is None:
            return await work
        future = asyncio.ensure_future(work)
        timer = self.run.call_later(
            self.step.timeout_seconds,
            lambda: future.done() or future.cancel("timed out"),
        )
        try:
            return await future
        except asyncio.CancelledError as error:
            if future.cancelled() and error.args == ("timed out",):
                raise self._timed_out() from None
            raise
        finally:
            timer.cancel()

    def _timed_out(self) -> StepTimedOut:
        return StepTimedOut(f"{self.what} took longer than {self.step.timeout_seconds} s")

    # When it failed

    async def _failed(self, error: Exception) -> bool:
        """Journals the try; True: after the back-off there is another."""
        run, policy = self.run, self.step.retry
        again = retries.should_retry(policy, error, self.number)
        exhausted = policy.attempts is not None and self.number >= policy.attempts
        park = not again and exhausted and policy.exhausted == "park"
        if not again and not park:
            return False
        due_at = None
        if again:
            now = run.tick()
            after = retries.retry_after(error, to_datetime(now))
            delay = retries.next_delay(
                policy, self.number, random=random.random(), retry_after=after
            )
            due_at = now + to_micros(delay)
        run.note(
            Kind.ATTEMPT,
            self.claim.key,
            position=self.claim.position,
            attempt=self.number,
            failed=True,
            digest=self.digest,
            input=self.input,
            output=codec.encode_error(error, what=self.what),
            started_at=self.started_at,
            due_at=due_at,
        )
        if self.claim.key in run.journal.logs:
            run.journal.logs[self.claim.key].drop_failures()
        if park:
            run.parking = (
                f"{self.what} failed {self.number} times, last with {type(error).__name__}: {error}"
            )
        try:
            await self._pause(due_at)
        except asyncio.CancelledError:
            self._abandon()
            raise
        return True

    async def _pause(self, due_at: Micros | None) -> None:
        """The back-off. It is no completion of the run's: a crash finds the deadline in the journal."""
        run = self.run
        if due_at is not None and due_at <= run.host.clock.now():
            return
        future: asyncio.Future[None] = run.loop.create_future()
        wait = Wait(Kind.ATTEMPT, self.claim, future, decode=lambda _: None, due_at=due_at)
        wait.label = f"the next try of {self.claim.key}"
        run.wait_for(wait)
        alarm = None
        if due_at is not None:
            alarm = run.call_at(due_at, lambda: future.done() or future.set_result(None))
        run.reconsider()
        try:
            await future
        finally:
            run.done_waiting(wait)
            if alarm is not None:
                alarm.cancel()

    def _abandon(self) -> None:
        if not self.run.closed:
            self.run.note(
                Kind.ABANDONED, self.claim.key, attempt=self.number, started_at=self.started_at
            )

    # When it is done

    async def _complete(self, done: tuple[Any, bytes] | None, error: Exception | None) -> Any:
        run, frame = self.run, self.frame
        entry = Entry(
            0,
            Kind.STEP,
            self.claim.key,
            run.tick(),
            position=self.claim.position,
            attempt=self.number,
            failed=error is not None,
            digest=self.digest,
            input=self.input,
            output=done[1] if done else codec.encode_error(error or Exception(), what=self.what),
            started_at=self.started_at,
        )
        if error is not None:
            _mark_exhausted(error)
        run.journal.step_ended(self.claim.key)
        try:
            await deliver(run, frame, self.claim, entry)
        except asyncio.CancelledError:
            self._abandon()
            raise
        if error is not None:
            raise error
        return done[0] if done else None


async def deliver(run: Execution, frame: Frame, claim: Claim, entry: Entry) -> None:
    """Returns when the completion has been journaled and its turn has come."""
    if frame.is_root:
        if frame.my_turn():
            run.append(entry)
            return
    else:
        run.append(entry)
        await run.barrier(entry.seq)
        if frame.my_turn():
            return
    future: asyncio.Future[None] = run.loop.create_future()
    wait = Wait(entry.kind, claim, future, decode=lambda _: None)
    run.wait_for(wait)
    frame.arrive(entry, wait)
    try:
        await future
    finally:
        run.done_waiting(wait)


@types.coroutine
def in_frame(
    hooks: LoopHooks,
    coro: Coroutine[Any, Any, Any],
    context: contextvars.Context,
    outer: Scope,
    inner: Scope,
) -> Generator[Any, Any, Any]:
    """Runs a step's body within the calling task (a task of its own would cost more than the step), but
    in its own context and frame: what it sets does not leak out, and the loop's handles count for it."""
    try:
        awaited = context.run(coro.send, None)
    except StopIteration as stop:
        return stop.value  # it never awaited anything: nobody could have told the difference
    task = asyncio.current_task()
    assert task is not None
    outer.frame.bodies[task] = task.cancelling()
    current.set(inner)
    if hooks.active is not None:
        hooks.active.move_to(inner.frame)
    try:
        while True:
            error: BaseException | None = None
            try:
                yield awaited
            except GeneratorExit:
                context.run(coro.close)
                raise
            except BaseException as thrown:
                error = thrown
            try:
                if error is None:
                    awaited = context.run(coro.send, None)
                else:
                    awaited = context.run(coro.throw, error)
            except StopIteration as stop:
                return stop.value
    finally:
        outer.frame.bodies.pop(task, None)
        # Only in our own task's context: a forgotten coroutine is closed by whoever collects garbage.
        if current.get() is inner:
            current.set(outer)
            if hooks.active is not None:
                hooks.active.move_to(outer.frame)


# Names and colours


def idempotency_key() -> str:
    """A name for the effect of the running step: the same in every try, also after a crash."""
    where = scope()
    if where is None or where.frame.is_root:
        raise NotInRun("idempotency_key() names a step's effect: call it inside a step that runs in a run")
    row = where.frame.run.row
    text = f"{row.incarnation}/{row.generation}{where.frame.key}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _receiver(fn: Callable[..., Any]) -> frozenset[str]:
    """`self` of a method is not part of a step's identity."""
    names = _parameters(fn)
    is_method = "." in fn.__qualname__.rpartition("<locals>.")[2]
    return frozenset(names[:1]) if is_method and names[:1] in (["self"], ["cls"]) else frozenset()


def _parameters(fn: Callable[..., Any]) -> list[str]:
    code = fn.__code__
    return list(code.co_varnames[: code.co_argcount])


def _on_event_loop() -> bool:
    return asyncio._get_running_loop() is not None


def _mark_coroutine_function(fn: Callable[..., Any]) -> None:
    if hasattr(inspect, "markcoroutinefunction"):
        inspect.markcoroutinefunction(fn)
    else:  # Python 3.11 knows this mark only in asyncio.iscoroutinefunction
        fn._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]


def _mark_exhausted(error: BaseException) -> None:
    """Steps around this one do not start their own retries over what was given up here."""
    try:
        error.__holdfast_exhausted__ = True  # type: ignore[attr-defined]
    except Exception:  # an exception class with slots: it is merely retried once more outside
        return
