"""The tries at one step, and how its outcome is journaled and delivered.

A try runs in a frame and a context of its own (see frame.py). A failed one leaves a note with the
time the next is due, so that a crash in the middle of a back-off resets neither the count nor the
remaining wait. If there is no next one, the note says so before the fallback begins.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from holdfast import codec
from holdfast import retry as retries
from holdfast.clock import Micros, to_datetime, to_micros
from holdfast.engine.body import in_frame
from holdfast.engine.context import Claim, Scope, current
from holdfast.engine.execution import Execution
from holdfast.engine.frame import Frame, Ring, Wait
from holdfast.engine.limiter import Turn, standing_place
from holdfast.engine.submission import Submission
from holdfast.engine.task import Continue
from holdfast.engine.thread import InThread, contained
from holdfast.errors import StepTimedOut, Suspended, Terminal
from holdfast.types import Entry, Kind

if TYPE_CHECKING:
    from holdfast.engine.step import Step


async def replay(
    run: Execution, frame: Frame, claim: Claim, entry: Entry, decode: Callable[[Entry], Any]
) -> Any:
    """Waits for the recorded completion's turn."""
    if frame.ready == 1 and frame.order and frame.order[0] is entry and not run.closed:
        # Nothing else can run and this is next: it is delivered by simply going on.
        frame.order.popleft()
        if frame.is_root:
            run.delivered_again(entry)
        return decode(entry)
    if not frame.is_root and (not frame.order or entry not in frame.order):
        return decode(entry)  # the body went another way than on record, and now asks for it
    while True:
        future: asyncio.Future[Any] = run.loop.create_future()
        wait = Wait(entry.kind, claim, future, decode=decode)
        run.wait_for(wait)
        frame.ask(wait)
        try:
            return await future
        except asyncio.CancelledError:
            # A step that is on record with an outcome outlived its cancellation when it was
            # executed.
            outlived = entry.kind is Kind.STEP and future.cancelled()
            if outlived and frame.order and entry in frame.order and not run.closed:
                continue
            raise
        finally:
            run.done_waiting(wait)


class Attempt:
    """The tries at one step, from the first to its outcome."""

    __slots__ = ("claim", "digest", "frame", "input", "number", "run", "started_at", "step")

    def __init__(self, run: Execution, frame: Frame, claim: Claim, step: Step) -> None:
        self.run, self.frame, self.claim, self.step = run, frame, claim, step
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
        place = None
        if last is not None:
            await run.may_start(self.frame)
            self.number = last.attempt
            if is_given_up(last) and step.retry.fallback is not None:
                return await self._fall_back(args, kwargs, in_thread)
            if is_given_up(last) and last.seq < run.journal.resumed_seq:
                self.number = 0  # somebody has granted a fresh set of tries
            else:
                place = standing_place(last)
                await self.pause_after(last)
        turn = Turn(self, step.limit) if step.limit is not None else None
        while True:
            await run.may_start(self.frame)
            if turn is not None:
                try:
                    await turn.come(args, kwargs, place)
                except Exception as error:  # its key makes no sense
                    self.started_at = run.tick()
                    return await self._complete(error)
                place = None
            self.number += 1
            self.started_at = run.tick()
            outcome = await self._try(args, kwargs, in_thread)
            if isinstance(outcome, Exception):
                if turn is not None:
                    await turn.failed(outcome)
                if await self._failed(outcome):
                    continue
                if step.retry.fallback is not None:
                    return await self._fall_back(args, kwargs, in_thread)
            return await self._complete(outcome)

    async def _fall_back(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], in_thread: InThread | None
    ) -> Any:
        """The step is given up, and the journal knows it: whoever dies from here on does not try it
        again."""
        await self.run.may_start(self.frame)
        self.started_at = self.run.tick()
        fallback = self.step.retry.fallback
        return await self._complete(await self._try(args, kwargs, in_thread, fallback))

    async def _try(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        in_thread: InThread | None,
        fallback: Callable[..., Any] | None = None,
    ) -> tuple[Any, bytes] | BaseException:
        """The body's result with its encoding, or what it raised."""
        task = asyncio.current_task(self.run.loop)
        assert task is not None
        cancelled_before = task.cancelling()
        try:
            value = await self._execute(args, kwargs, in_thread, fallback)
            return value, codec.encode(value, annotation=self.step.result_type(), what=self.claim)
        except (Suspended, Continue, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            if self.run.closed:
                raise Suspended from None
            if isinstance(error, asyncio.CancelledError) and task.cancelling() > cancelled_before:
                self._abandon()  # the run cancelled it, and so it has no outcome
                raise
            return error

    async def _execute(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        in_thread: InThread | None,
        fallback: Callable[..., Any] | None = None,
    ) -> Any:
        """Runs the body in a frame and a context of its own."""
        run, key = self.run, self.claim.key
        fn, is_async = self.step.fn, self.step.is_async
        if fallback is not None:
            fn, is_async = fallback, is_async_function(fallback)
        body = Scope(Frame(run, key, run.journal.order_of(key), self.frame), key)
        context = contextvars.copy_context()
        context.run(current.set, body)
        if run.host.settings.on_step is not None:
            run.host.settings.on_step(run.row, key, self.digest)
        run.executing += 1
        try:
            if is_async:
                coro = context.run(fn, *args, **kwargs)
                if self.step.timeout_seconds is not None:
                    coro = self._limited(coro)
                return await in_frame(run.host.hooks, coro, context, self.claim.scope, body)
            assert in_thread is not None or fallback is not None
            if in_thread is None:
                return context.run(fn, *args, **kwargs)
            work = functools.partial(contained, functools.partial(_called, fn, args, kwargs))
            submission = Submission(body.frame)
            thread = in_thread(lambda: submission.do(lambda: context.run(work)))
            run.submissions[thread] = submission
            try:
                return await self._in_thread(thread, body.frame)
            finally:
                del run.submissions[thread]
        finally:
            run.executing -= 1
            body.frame.close()
            if run.closed:
                # The body may have swallowed Suspended; its outcome counts for nothing.
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

    async def _in_thread(self, work: Awaitable[Any], body: Frame) -> Any:
        """A thread cannot be stopped: on a time-out its outcome is dropped."""
        if self.step.timeout_seconds is None:
            return await work
        future = asyncio.ensure_future(work)
        ring = Ring(lambda: future.done() or future.cancel("timed out"))
        timer = body.keep(self.run.call_later(self.step.timeout_seconds, ring), ring)
        try:
            return await future
        except asyncio.CancelledError as error:
            if future.cancelled() and error.args == ("timed out",):
                raise self._timed_out() from None
            raise
        finally:
            timer.cancel()

    def _timed_out(self) -> StepTimedOut:
        return StepTimedOut(f"{self.claim} took longer than {self.step.timeout_seconds} s")

    # When it failed

    async def _failed(self, error: Exception) -> bool:
        """Journals the try; True: after the back-off there is another."""
        run, policy = self.run, self.step.retry
        again = retries.should_retry(policy, error, self.number)
        exhausted = policy.attempts is not None and self.number >= policy.attempts
        park = not again and exhausted and policy.exhausted == "park"
        if not again and not park and policy.fallback is None:
            return False
        due_at = None
        if again:
            now = run.tick()
            after = retries.retry_after(error, to_datetime(now))
            delay = retries.next_delay(
                policy, self.number, random=random.random(), retry_after=after
            )
            due_at = now + to_micros(delay)
        noted = run.note(
            Kind.ATTEMPT,
            self.claim.key,
            position=self.claim.position,
            attempt=self.number,
            failed=True,
            digest=self.digest,
            input=self.input,
            output=codec.encode_error(error, what=self.claim),
            started_at=self.started_at,
            due_at=due_at,
        )
        if self.claim.key in run.journal.logs:
            run.journal.logs[self.claim.key].drop_failures()
        if not again and not park:
            return False
        await self.pause_after(noted)
        return True

    async def pause_after(self, noted: Entry, label: str = "") -> None:
        """The back-off. It is no completion of the run's: a crash finds the deadline in the
        journal. Without one, the run is parked until somebody grants more tries."""
        run, due_at = self.run, noted.due_at
        if due_at is not None and due_at <= run.host.clock.now():
            return
        future: asyncio.Future[None] = run.loop.create_future()
        if due_at is None:
            label = self._given_up(noted)
        else:
            label = label or f"the next try of {self.claim.key}"
        wait = Wait(
            Kind.ATTEMPT, self.claim, future, decode=lambda _: None, label=label, due_at=due_at
        )
        run.wait_for(wait)
        alarm = None
        if due_at is not None:
            alarm = run.call_at(due_at, lambda: _set(future))
        run.reconsider()
        try:
            await future
        except asyncio.CancelledError:
            self._abandon()
            raise
        finally:
            run.done_waiting(wait)
            if alarm is not None:
                alarm.cancel()

    def _given_up(self, failed: Entry) -> str:
        error, message, _ = codec.error_summary(failed.output or b"null")
        return f"{self.claim} failed {failed.attempt} times, last with {error}: {message}"

    def _abandon(self) -> None:
        if not self.run.closed:
            self.run.note(
                Kind.ABANDONED, self.claim.key, attempt=self.number, started_at=self.started_at
            )

    # When it is done

    async def _complete(self, outcome: tuple[Any, bytes] | BaseException) -> Any:
        run, frame = self.run, self.frame
        failed = isinstance(outcome, BaseException)
        entry = Entry(
            0,
            Kind.STEP,
            self.claim.key,
            run.tick(),
            position=self.claim.position,
            attempt=self.number,
            failed=failed,
            digest=self.digest,
            input=self.input,
            output=(
                codec.encode_error(outcome, what=self.claim)
                if isinstance(outcome, BaseException)
                else outcome[1]
            ),
            started_at=self.started_at,
        )
        run.journal.step_ended(self.claim.key)
        try:
            await deliver(run, frame, self.claim, entry)
        except asyncio.CancelledError:
            self._abandon()
            raise
        if isinstance(outcome, BaseException):
            raise _as_replayed(entry, outcome)
        return outcome[0]


async def deliver(run: Execution, frame: Frame, claim: Claim, entry: Entry) -> None:
    """Returns when the completion has been journaled and its turn has come."""
    if frame.is_root:
        if frame.my_turn():
            run.append(entry)
            run.pass_time(entry.at)
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


def is_given_up(last: Entry) -> bool:
    """Is no further try due, by the last entry about a step's tries?"""
    return last.failed and last.due_at is None


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _as_replayed(entry: Entry, original: BaseException) -> BaseException:
    """What a replay would raise: code that looks at an error must find the same on both occasions,
    and not everything in an error can be kept (a response, a lock). The traceback is the live one.
    """
    error = codec.decode_error(entry.output or b"")
    _mark_exhausted(error)
    return error.with_traceback(original.__traceback__)


def _called(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return fn(*args, **kwargs)
    except StopIteration as error:
        raise Terminal("a step raised StopIteration, which no future can hold") from error


def is_async_function(fn: Callable[..., Any]) -> bool:
    """Also of our own steps, which Python 3.11 does not take for coroutine functions."""
    step = getattr(fn, "__holdfast_step__", None)
    return bool(step.is_async) if step is not None else inspect.iscoroutinefunction(fn)


def _mark_exhausted(error: BaseException) -> None:
    """Steps around this one do not start their own retries over what was given up here."""
    try:
        error.__holdfast_exhausted__ = True  # type: ignore[attr-defined]
    except Exception:  # an exception class with slots: it is merely retried once more outside
        return
