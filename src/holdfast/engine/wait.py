"""Durable waits: what every wait shares, and messages.

A wait is named when it is made and waited for when it is awaited or, in a `def` workflow, asked for
its `result()`. A run that only waits leaves memory (see rest.py).
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar, overload

from holdfast import codec
from holdfast.clock import Micros
from holdfast.engine.attempt import replay
from holdfast.engine.context import Claim, Scope, named, outside, scope
from holdfast.engine.depth import refuse_if_too_deep
from holdfast.engine.execution import Execution
from holdfast.engine.frame import Admit, Wait
from holdfast.engine.preview import ended
from holdfast.engine.task import Continue
from holdfast.engine.thread import portal
from holdfast.errors import BadValue, NotInRun, Suspended
from holdfast.types import Entry, Kind

T = TypeVar("T")


def required_scope(what: str) -> Scope:
    where = scope()
    if where is None:
        raise NotInRun(f"{what} waits durably, which only a run can: call it inside a workflow")
    refuse_if_too_deep(what)
    return where


def blocks_here(where: Scope) -> bool:
    """Is this a thread of the run, where waiting means blocking?"""
    return asyncio._get_running_loop() is not where.frame.run.loop


def on_loop(where: Scope, call: Callable[[], T]) -> T:
    """Calls on the run's event loop, from wherever the run's code is."""
    if not blocks_here(where):
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
    admit: Admit | None = None,
    before: Callable[[], Awaitable[Entry | None]] | None = None,
) -> Any:
    """Waits for one completion from outside of the run's own code.

    admit: what puts it into the form in which it is recorded, if that is not how it came.
    before: what makes it come; if it cannot, it gives the completion itself.
    """
    frame = claim.scope.frame
    run = frame.run
    if run.closed:
        raise Suspended
    refuse_if_too_deep(claim.name)
    recorded = run.journal.find(claim, kind)
    if recorded is not None:
        return await replay(run, frame, claim, recorded, decode)
    if run.previews:
        await ended(run, scope())
    at_once = await before() if before is not None else None
    future: asyncio.Future[Any] = run.loop.create_future()
    wait = Wait(
        kind, claim, future, decode=decode, label=label, due_at=due_at, mail_name=mail_name,
        admit=admit,
    )  # fmt: skip
    run.wait_for(wait)
    alarm = None
    if due_at is not None:
        entry = Entry(0, kind, claim.key, due_at, position=claim.position)
        alarm = run.call_at(due_at, lambda: due(run, entry, wait))
    if at_once is not None:
        wait.ready = False
        run.arrive(at_once, wait)
    elif mail_name is not None:
        run.inbox.match(wait)
    if frame.key:
        run.reconsider()
    try:
        return await future
    finally:
        run.done_waiting(wait)
        if alarm is not None:
            alarm.cancel()


def due(run: Execution, entry: Entry, wait: Wait) -> None:
    entry.at = run.tick()
    run.arrive(entry, wait)


def nothing(entry: Entry) -> None:
    return None


class Waitable(Generic[T]):
    """Something that can be awaited, raced, or (in a `def` workflow) asked for its `result()`.

    It has one outcome: whoever awaits it again, or at the same time, gets the same.
    """

    _outcome: tuple[T | None, Exception | None] | None = None
    _awaited = False
    _others: tuple[asyncio.Future[None], ...] = ()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._settled().__await__()

    def _wait(self) -> Coroutine[Any, Any, T]:
        raise NotImplementedError

    async def _settled(self) -> T:
        while self._outcome is None:
            if self._awaited:
                await self._wait_behind()
            else:
                await self._wait_first()
        value, error = self._outcome
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    async def _wait_first(self) -> None:
        self._awaited = True
        try:
            self._outcome = await self._wait(), None
        except Exception as error:
            self._outcome = None, error
        finally:
            # Cancelled, it leaves its place to the next.
            self._awaited = False
            others, self._others = self._others, ()
            for other in others:
                if not other.done():
                    other.set_result(None)

    async def _wait_behind(self) -> None:
        run = required_scope("await").frame.run
        turn: asyncio.Future[None] = run.loop.create_future()
        self._others = (*self._others, turn)
        run.transparent.add(turn)
        try:
            await turn
        finally:
            run.transparent.discard(turn)

    def result(self) -> T:
        """Blocks until it is there; for `def` workflows."""
        where = required_scope("result()")
        if not blocks_here(where):
            raise NotInRun("result() blocks; in an async workflow, use await")
        value: T = portal(where, lambda _: self._settled())
        return value


# Messages


class FromOutside(Waitable[T]):
    """Mail of an annotated type: the sender may not have known it, or has plain data only.

    Plain data is converted before it is journaled. The journal then holds the very value that the
    code sees: default values and validators may make another one of the same data the next time.
    """

    _kind: Kind
    _claim: Claim
    _annotation: Any
    _label: str  # what is waited for
    _what: str  # what it is called when it has come and does not fit
    _mail_name: str

    async def _wait(self) -> T:
        value: T = await external(
            self._claim,
            self._kind,
            self._decode,
            label=self._label,
            mail_name=self._mail_name,
            admit=self._admit,
        )
        return value

    def _admit(self, payload: bytes | None) -> bytes:
        return outside(codec.admit, payload or b"null", self._annotation, what=self._what)

    def _decode(self, entry: Entry) -> T:
        payload = entry.output or b"null"
        found = outside(codec.decode_fitting, payload, self._annotation, what=self._what)
        value: T = found[0]
        return value


class Receive(FromOutside[T]):
    _kind = Kind.MESSAGE

    def __init__(self, where: Scope, channel: str, annotation: Any) -> None:
        name = "receive" if channel == "" else f"receive:{named('channel', channel)}"
        self._claim = where.claim(name)
        self._annotation, self._mail_name = annotation, channel
        self._label = f"a message on channel {channel!r}" if channel else "a message"
        self._what = f"a message on channel {channel!r}"


@overload
def receive(type: type[T], /, *, channel: str = "") -> Receive[T]: ...
@overload
def receive(type: types.UnionType, /, *, channel: str = "") -> Receive[Any]: ...
@overload
def receive(*, channel: str = "") -> Receive[Any]: ...
def receive(type: Any = Any, /, *, channel: str = "") -> Any:
    """The next message sent to this run, in order of arrival. In a `def` workflow, ask for its
    `result()`. A message that does not fit the type is a BadValue."""
    where = required_scope("receive()")
    return on_loop(where, lambda: Receive(where, channel, type))


def continue_as(*args: Any, **kwargs: Any) -> None:
    """Ends this journal and goes on with a fresh one: the same run, the same workflow, new
    arguments."""
    where = required_scope("continue_as()")
    if not where.is_main:
        raise BadValue(
            "continue_as() belongs into the workflow's own body, not into a task or step"
        )
    raise Continue(where.frame.run.workflow.encode_input(args, kwargs))
