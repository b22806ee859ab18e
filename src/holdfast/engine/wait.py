"""Durable waits: timers, promises, approvals, messages, child runs, and races between them.

A wait is named when it is made and waited for when it is awaited. Inside a `def` workflow the same calls block
and return the value. A run that only waits leaves memory (see rest.py).
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, ParamSpec, TypeVar, overload

from holdfast import codec
from holdfast.clock import Micros, to_datetime, to_micros
from holdfast.engine.context import Claim, Scope, scope
from holdfast.engine.execution import Continue, Execution
from holdfast.engine.frame import Wait
from holdfast.engine.step import replay, step
from holdfast.engine.thread import portal, submit
from holdfast.engine.value import _remembered, uuid4
from holdfast.engine.workflow import Workflow
from holdfast.errors import BadValue, NotInRun, PromiseReused, RunCancelled, RunFailed, Suspended
from holdfast.types import Entry, Kind, PromiseRow

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


def required_scope(what: str) -> Scope:
    where = scope()
    if where is None:
        raise NotInRun(f"{what} waits durably, which only a run can: call it inside a workflow")
    return where


def _blocks_here(where: Scope) -> bool:
    """Is this a thread of the run, where waiting means blocking?"""
    return asyncio._get_running_loop() is not where.frame.run.loop


def on_loop(where: Scope, call: Callable[[], T]) -> T:
    """Calls on the run's event loop, from wherever the run's code is."""
    if not _blocks_here(where):
        return call()

    async def called(_: object) -> T:
        return call()

    result: T = portal(where, called)
    return result


async def external(
    claim: Claim,
    kind: Kind,
    decode: Callable[[Entry], Any],
    *,
    label: str,
    due_at: Micros | None = None,
    mail_name: str | None = None,
    before: Callable[[], Awaitable[None]] | None = None,
) -> Any:
    """Waits for one completion from outside of the run's own code."""
    frame = claim.scope.frame
    run = frame.run
    if run.closed:
        raise Suspended
    recorded = run.journal.find(claim, kind)
    if recorded is not None:
        return await replay(run, frame, claim, recorded, decode)
    if before is not None:
        await before()
    future: asyncio.Future[Any] = run.loop.create_future()
    wait = Wait(kind, claim, future, decode=decode, label=label, due_at=due_at, mail_name=mail_name)
    run.wait_for(wait)
    alarm = None
    if due_at is not None:
        entry = Entry(0, kind, claim.key, due_at, position=claim.position)
        alarm = run.call_at(due_at, lambda: _due(run, entry, wait))
    if mail_name is not None:
        run.match(wait)
    if frame.key:
        run.reconsider()
    try:
        return await future
    finally:
        run.done_waiting(wait)
        if alarm is not None:
            alarm.cancel()


def _due(run: Execution, entry: Entry, wait: Wait) -> None:
    entry.at = run.tick()
    run.arrive(entry, wait)


def _nothing(entry: Entry) -> None:
    return None


class Waitable(Generic[T]):
    """Something that can be awaited, raced, or (in a `def` workflow) asked for its `result()`."""

    def __await__(self) -> Generator[Any, Any, T]:
        return self._wait().__await__()

    def _wait(self) -> Coroutine[Any, Any, T]:
        raise NotImplementedError

    def result(self) -> T:
        """Blocks until it is there; for `def` workflows."""
        where = required_scope("result()")
        if not _blocks_here(where):
            raise NotInRun("result() blocks; in an async workflow, use await")
        value: T = portal(where, lambda _: self._wait())
        return value


# Timers


class Timer(Waitable[None]):
    def __init__(self, where: Scope, duration: timedelta) -> None:
        run = where.frame.run
        claim = self._claim = where.claim("sleep")
        if where.frame.is_root:
            # The body's own time stands still between completions, so this is the same on every replay.
            self.due_at = run.now + to_micros(duration)
        else:
            until = Claim(where, f"{claim.key}.until", "until", 0)
            due = _remembered(where, until, lambda: run.tick() + to_micros(duration), int)
            self.due_at = due

    async def _wait(self) -> None:
        label = f"a timer due {to_datetime(self.due_at):%Y-%m-%d %H:%M:%S} UTC"
        await external(self._claim, Kind.TIMER, _nothing, label=label, due_at=self.due_at)


def sleep(duration: timedelta | float) -> Timer:
    """Waits until an absolute deadline: crashes and redeploys do not prolong it."""
    if not isinstance(duration, timedelta):
        if not isinstance(duration, int | float) or not math.isfinite(duration):
            raise BadValue(f"sleep() takes a timedelta or seconds, not {duration!r}")
        duration = timedelta(seconds=duration)
    if duration < timedelta(0):
        raise BadValue(f"sleep() cannot wait for a negative time ({duration})")
    where = required_scope("sleep()")
    if not _blocks_here(where):
        return Timer(where, duration)

    async def call(_: object) -> Timer:
        timer = Timer(where, duration)
        await timer
        return timer

    done: Timer = portal(where, call)
    return done


class LoopTimer:
    """What `loop.call_at` and `call_later` return in a workflow's body: a durable timer.

    It stands in for asyncio.TimerHandle, and receives its own completion.
    """

    __slots__ = (
        "_alarm",
        "_args",
        "_callback",
        "_context",
        "_done",
        "_handle",
        "_run",
        "_wait",
        "_when",
        "covers",
    )

    def __init__(
        self,
        run: Execution,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        when: float,
    ) -> None:
        self._run, self._callback, self._args = run, callback, args
        self._context, self._when = context, when
        self._done = False
        self._alarm: Any = None
        self._handle: Any = None
        self._wait: Wait | None = None
        # `asyncio.sleep` waits for a bare future that its timer sets: that is no plain I/O.
        self.covers = args[0] if args and asyncio.isfuture(args[0]) else None

    def arm(self, where: Scope, due_at: Micros) -> None:
        run, claim = self._run, where.claim("timer")
        label = f"a timer due {to_datetime(due_at):%Y-%m-%d %H:%M:%S} UTC"
        wait = self._wait = Wait(
            Kind.TIMER, claim, self, decode=_nothing, label=label, due_at=due_at
        )
        recorded = run.journal.find(claim, Kind.TIMER)
        run.wait_for(wait)
        if recorded is not None:
            where.frame.ask(wait)
            return
        entry = Entry(0, Kind.TIMER, claim.key, due_at, position=claim.position)
        self._alarm = run.call_at(due_at, lambda: _due(run, entry, wait))

    # As a receiver

    def done(self) -> bool:
        return self._done

    def set_result(self, result: object, /) -> None:
        self._finish()
        loop = self._run.loop
        self._handle = loop.call_soon(self._callback, *self._args, context=self._context)

    def set_exception(self, exception: BaseException, /) -> None:
        self._finish()
        if self.covers is not None and not self.covers.done():
            self.covers.set_exception(exception)

    def _finish(self) -> None:
        self._done = True
        if self._wait is not None:
            self._run.done_waiting(self._wait)
        if self._alarm is not None:
            self._alarm.cancel()

    # As a timer handle

    def cancel(self) -> None:
        if not self._done:
            self._finish()
            assert self._wait is not None
            self._wait.claim.scope.frame.asked.pop(self._wait.claim.key, None)
        elif self._handle is not None:
            self._handle.cancel()  # it fired, but its callback has not run yet

    def cancelled(self) -> bool:
        return self._done

    def when(self) -> float:
        return self._when


class BodyTimers:
    """What the loop hooks call inside a run."""

    def timer(
        self,
        where: Scope,
        delay_seconds: float,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> LoopTimer:
        run = where.frame.run
        if run.closed:
            raise Suspended
        timer = LoopTimer(run, callback, args, context, when)
        timer.arm(where, run.now + max(0, round(min(delay_seconds, 1e9) * 1e6)))
        return timer

    def submit(
        self, where: Scope, executor: Any, func: Callable[..., Any], args: tuple[Any, ...]
    ) -> Any:
        return submit(where, executor, func, args)


# Promises


@dataclass(frozen=True)
class Decision:
    """The answer to an approval."""

    approved: bool
    by: str | None = None
    comment: str | None = None


codec.register(Decision, name="decision")


class Promise(Waitable[T]):
    """A value that somebody outside of the run gives: `app.resolve(run_id, name, value)`."""

    def __init__(self, where: Scope, name: str, annotation: Any, kind: Any, prompt: Any) -> None:
        run = where.frame.run
        self.name = name
        self._claim = where.claim(f"{kind}:{name}")
        self._annotation = annotation
        self._value: list[T] = []
        self._kind = kind
        other = run.promises.setdefault(name, self._claim.key)
        if other != self._claim.key:
            raise PromiseReused(
                f"run {run.row.id!r} opened the {kind} {name!r} twice, at {other} and {self._claim.key}: "
                "an answer to one would be taken for the other's; give each its own name"
            )
        what = f"the prompt of {kind} {name!r} in run {run.row.id!r}"
        row = PromiseRow(
            run.row.key,
            name,
            self._claim.key,
            kind,
            codec.describe(annotation),
            None if prompt is None else codec.encode(prompt, what=what),
            run.tick(),
        )
        run.announce(row)

    async def _wait(self) -> T:
        if not self._value:
            label = f"the {self._kind} {self.name!r}"
            decode = self._decode
            self._value.append(
                await external(self._claim, Kind.PROMISE, decode, label=label, mail_name=self.name)
            )
        return self._value[0]

    def _decode(self, entry: Entry) -> T:
        what = f"the answer to {self._kind} {self.name!r}"
        value: T = codec.decode(entry.output or b"null", self._annotation, what=what)
        return value


def _make_promise(name: str, annotation: Any, kind: str, prompt: Any) -> Promise[Any]:
    where = required_scope(f"{kind}()")
    return on_loop(where, lambda: Promise(where, name, annotation, kind, prompt))


@overload
def promise(name: str, type: type[T], /) -> Promise[T]: ...
@overload
def promise(name: str, /) -> Promise[Any]: ...
def promise(name: str, type: Any = None, /) -> Promise[Any]:
    """A value to be given from outside. It can be given before it is awaited; the first answer stands."""
    return _make_promise(name, type, "promise", None)


def approval(name: str, prompt: object = None, /) -> Promise[Decision]:
    """A promise for somebody's decision; `prompt` is what they are shown."""
    return _make_promise(name, Decision, "approval", prompt)


# Messages


class Receive(Waitable[T]):
    def __init__(self, where: Scope, channel: str, annotation: Any) -> None:
        self._claim = where.claim(f"receive:{channel}" if channel else "receive")
        self._channel, self._annotation = channel, annotation

    async def _wait(self) -> T:
        def decode(entry: Entry) -> Any:
            what = f"a message on channel {self._channel!r}"
            return codec.decode(entry.output or b"null", self._annotation, what=what)

        label = f"a message on channel {self._channel!r}" if self._channel else "a message"
        value: T = await external(
            self._claim, Kind.MESSAGE, decode, label=label, mail_name=self._channel
        )
        return value


@overload
def receive(type: type[T], /, *, channel: str = "") -> Receive[T]: ...
@overload
def receive(*, channel: str = "") -> Receive[Any]: ...
def receive(type: Any = None, /, *, channel: str = "") -> Any:
    """The next message sent to this run, in order of arrival."""
    where = required_scope("receive()")
    if not _blocks_here(where):
        return Receive(where, channel, type)

    async def call(_: object) -> Any:
        return await Receive(where, channel, type)

    return portal(where, call)


# Child runs


class Child(Waitable[R]):
    """A run of its own, started by this one and awaited by it."""

    def __init__(
        self, where: Scope, workflow: Workflow[Any, R], args: Any, kwargs: Any
    ) -> None:
        run = where.frame.run
        self._workflow = workflow
        self._claim = where.claim(f"child:{workflow.name}")
        self._input = workflow.encode_input(args, kwargs)
        self.id = workflow.options.id or f"{run.row.id}{self._claim.key}"
        if not workflow.options.id and run.row.generation > 1:
            self.id = f"{run.row.id}~{run.row.generation}{self._claim.key}"

    async def _wait(self) -> R:
        run = self._claim.scope.frame.run

        async def start() -> None:
            await run.may_start(self._claim.scope.frame)
            await run.host.start_child(run, self._claim.key, self.id, self._workflow, self._input)

        value: R = await external(
            self._claim,
            Kind.CHILD,
            self._decode,
            label=f"the child run {self.id!r}",
            mail_name=self._claim.key,
            before=start,
        )
        return value

    def _decode(self, entry: Entry) -> R:
        if not entry.failed:
            value: R = self._workflow.decode_result(entry.output, self.id)
            return value
        if entry.output is None:
            raise RunCancelled(f"the child run {self.id!r} was cancelled")
        error = codec.decode_error(entry.output)
        raise RunFailed(f"the child run {self.id!r} failed: {error}") from error


def child(workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Child[R]:
    """Starts a run of another workflow and waits for its result; its death is not this run's."""
    where = required_scope("child()")
    return on_loop(where, lambda: Child(where, workflow, args, kwargs))


@step(name="start")
async def _start(id: str, workflow: str, payload: bytes, options: dict[str, Any]) -> str:
    where = scope()
    assert where is not None
    await where.frame.run.host.start_detached(id, workflow, payload, options)
    return id


async def start(workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> str:
    """Starts a run that goes its own way, and returns its id; started once, whatever dies."""
    required_scope("start()")
    payload = workflow.encode_input(args, kwargs)
    id = workflow.options.id or str(uuid4())
    return await _start(id, workflow.name, payload, workflow.options.given())


# Races


class Race(Waitable[tuple[str, Any]]):
    def __init__(self, contenders: dict[str, Any]) -> None:
        self._contenders = contenders

    async def _wait(self) -> tuple[str, Any]:
        tasks = {name: asyncio.ensure_future(_entered(c)) for name, c in self._contenders.items()}
        try:
            await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
            winner = next(name for name, task in tasks.items() if task.done())
        finally:
            losers = [task for task in tasks.values() if not task.done()]
            for task in losers:
                task.cancel()
            if losers:
                await asyncio.wait(losers)
        return winner, tasks[winner].result()


async def _entered(contender: Any) -> Any:
    return await contender


def race(**contenders: Awaitable[Any] | timedelta) -> Race:
    """Waits for the first of several things: `name, value = await race(answer=..., late=sleep(...))`.

    Losing steps are cancelled, losing promises stay open, losing child runs go on.
    """
    if not contenders:
        raise BadValue("race() needs at least one contender")
    where = required_scope("race()")

    def entered() -> Race:
        return Race(
            {
                name: Timer(where, c) if isinstance(c, timedelta) else c
                for name, c in contenders.items()
            }
        )

    if not _blocks_here(where):
        return entered()

    async def call(_: object) -> Any:
        return await entered()

    outcome: Race = portal(where, call)
    return outcome


def continue_as(*args: Any, **kwargs: Any) -> None:
    """Ends this journal and goes on with a fresh one: the same run, the same workflow, new arguments."""
    where = required_scope("continue_as()")
    raise Continue(where.frame.run.workflow.encode_input(args, kwargs))


def sleep_until(when: datetime) -> Timer:
    """Waits until a point in time."""
    if when.tzinfo is None:
        raise BadValue("sleep_until() needs a datetime with a time zone")
    where = required_scope("sleep_until()")
    left = when.astimezone(UTC) - to_datetime(where.frame.run.now)
    return sleep(max(left, timedelta(0)))
