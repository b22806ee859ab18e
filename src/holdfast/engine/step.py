"""Steps: journaled units of work, with their retries.

`@step` keeps a function's colour and signature. Outside any run a step is the plain function.
Inside one, a call is looked up in the journal; if it is not there, it is executed once everything
before it is durable, and its outcome is journaled before anything after it. A step is executed at
least once: a crash between its effect and its commit executes it again, under the same idempotency
key.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from threading import get_ident
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from holdfast import codec
from holdfast.engine.arguments import warn_if_changed
from holdfast.engine.attempt import Attempt, is_async_function, replay
from holdfast.engine.context import Claim, named, scope
from holdfast.engine.depth import refuse_if_nested_too_deep, refuse_if_too_deep
from holdfast.engine.host import any_open
from holdfast.engine.preview import ended
from holdfast.engine.thread import InThread, own_thread, portal
from holdfast.errors import BadArguments, NotInRun, StepOnEventLoop, Suspended
from holdfast.retry import Retry
from holdfast.types import Entry, Kind

if TYPE_CHECKING:
    from holdfast.limits import Limit

P = ParamSpec("P")
R = TypeVar("R")

_DEFAULT_RETRY = Retry()
_UNRESOLVED = object()


@overload
def step(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout: timedelta | None = None,
    limit: Limit | None = None,
    journal_input: bool = True,
    exclude: Sequence[str] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def step(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Makes a function a step.

    name: its name in the journal, if not the function's own; keep it when you rename the function.
    retry: what to do when it fails; by default what can succeed later is retried, see
    docs/retries.md. timeout: how long one attempt may take. It counts in real time, anew after a
    crash, and so a run whose step waits under it stays in memory: long waits belong into workflows.
    A sync step that takes too long goes on in its thread, and nobody hears of its outcome.
    limit: how often it may begin, in all workers together; see docs/queues.md.
    journal_input: keep the arguments in the journal (their digest is kept always).
    exclude: parameters that are no part of the step's identity and are not journaled (clients,
    handles).
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
        limit: Limit | None = None,
        journal_input: bool = True,
        exclude: Sequence[str] = (),
    ) -> None:
        if not inspect.isfunction(fn):
            raise TypeError(f"@holdfast.step is for functions, not for {fn!r}: wrap it in a def")
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise TypeError(f"a step returns one value, and {fn.__name__!r} is a generator")
        if timeout is not None and timeout <= timedelta(0):
            raise ValueError(f"a step's timeout must be longer than nothing, not {timeout}")
        if limit is not None:
            from holdfast.limits import Limit

            if not isinstance(limit, Limit):
                raise BadArguments(f"a step's limit is a holdfast.Limit, not {limit!r}")
        self.limit = limit
        self.fn: Callable[..., Any] = fn
        self.name = named("step", name or fn.__name__)
        self.retry = retry or _DEFAULT_RETRY
        self.timeout_seconds = timeout.total_seconds() if timeout else None
        self.journal_input = journal_input
        self.is_async = is_async_function(fn)
        self._exclude = frozenset(exclude) | _receiver(fn)
        self._names = _parameters(fn)
        self._result: Any = _UNRESOLVED  # at first use: annotations may name later classes
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
                    f"the sync step {self.name!r} was called on the event loop, "
                    f"which it would block: use `await asyncio.to_thread({self.name}, ...)`"
                )
            claim = where.claim(self.name)
            return portal(where, lambda here: self.invoke(claim, args, kwargs, self._thread(here)))

        if self.is_async:
            _mark_coroutine_function(call)
        call.__holdfast_step__ = self  # type: ignore[attr-defined]
        return call

    def _thread(self, here: InThread) -> InThread:
        """Where the body runs: in the thread that called, unless that has to be told of a time-out
        while the body goes on."""
        if self.timeout_seconds is None:
            return here
        return functools.partial(own_thread, asyncio.get_running_loop())

    def _refuse_if_lost(self) -> None:
        """In a process that executes runs, a bare thread has most likely lost its run."""
        if any_open() and not _on_event_loop():
            thread = threading.current_thread()
            if thread is not threading.main_thread():
                raise NotInRun(
                    f"step {self.name!r} was called in thread {thread.name!r}, which belongs to no "
                    "run: start threads with `asyncio.to_thread`, or run their work in a copy of "
                    "the context (`contextvars.copy_context().run(...)`)"
                )

    # One call

    async def invoke(
        self,
        claim: Claim,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        in_thread: InThread | None,
    ) -> Any:
        frame = claim.scope.frame
        run = frame.run
        if run.closed:
            raise Suspended
        refuse_if_too_deep(self.name)
        if frame.key:
            refuse_if_nested_too_deep(frame.key, self.name)
        if get_ident() != run.host.hooks.thread and asyncio.get_running_loop() is not run.loop:
            raise NotInRun(
                f"step {self.name!r} was awaited on another event loop than its run's: "
                "await it in the workflow itself"
            )
        payload = self._encode(args, kwargs, claim)
        digest = codec.digest(payload)
        recorded = run.journal.find(claim, Kind.STEP, digest, payload)
        if recorded is not None:
            return await replay(run, frame, claim, recorded, self._decode(claim))
        if run.previews:
            await ended(run, scope())
        attempt = Attempt(run, frame, claim, self)
        inputs = run.journal.inputs
        stored = attempt.input = inputs.shortened(payload) if self.journal_input else None
        attempt.digest = digest
        result = await attempt.until_done(args, kwargs, in_thread)
        if stored is not None:
            inputs.succeeded(digest, payload, stored)
        if run.host.settings.checks_arguments:
            after = functools.partial(self._encode, args, kwargs, claim)
            warn_if_changed(payload, after, claim.key, self.fn)
        return result

    def _encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], claim: Claim) -> bytes:
        return codec.encode(self._identity(args, kwargs), what=_ArgumentsOf(claim), loose=True)

    def _identity(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        # By name, so that a refactoring from f(1) to f(x=1) does not change what was asked for.
        if not kwargs and not self._exclude and len(args) <= len(self._names):
            return dict(zip(self._names, args, strict=False))
        named: dict[str, Any] = {}
        for index, value in enumerate(args):
            name = self._names[index] if index < len(self._names) else f"*{index}"
            if name not in self._exclude:
                named[name] = value
        for name, value in kwargs.items():
            if name not in self._exclude:
                # f(1, a=2) of `def f(a, /, **more)` has two arguments called `a`.
                named[f"**{name}" if name in named else name] = value
        return named

    def result_type(self) -> Any:
        if self._result is _UNRESOLVED:
            self._result = codec.hints(self.fn)[1]
        return self._result

    def _decode(self, what: Claim) -> Callable[[Entry], Any]:
        def decode(entry: Entry) -> Any:
            if entry.failed:
                raise codec.decode_error(entry.output or b"null")
            return codec.decode(entry.output or b"null", self.result_type(), what=what)

        return decode


class _ArgumentsOf:
    """Their name, in case that they cannot be recorded."""

    __slots__ = ("_claim",)

    def __init__(self, claim: Claim) -> None:
        self._claim = claim

    def __str__(self) -> str:
        return f"the arguments of {self._claim}"


# Names and colours


def idempotency_key() -> str:
    """A name for the effect of the running step: the same in every try, also after a crash."""
    where = scope()
    if where is None or where.frame.is_root:
        raise NotInRun(
            "idempotency_key() names a step's effect: call it inside a step that runs in a run"
        )
    row = where.frame.run.row
    text = f"{row.incarnation}/{row.generation}{where.frame.key}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _receiver(fn: Callable[..., Any]) -> frozenset[str]:
    """`self` of a method is not part of a step's identity."""
    names = _parameters(fn)
    is_method = "." in fn.__qualname__.rpartition("<locals>.")[2]
    return frozenset(names[:1]) if is_method and names[:1] in (["self"], ["cls"]) else frozenset()


def _parameters(fn: Callable[..., Any]) -> list[str]:
    if not vars(fn):  # a plain function: its signature need not be made, which takes its time
        code = fn.__code__
        return list(code.co_varnames[: code.co_argcount])
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(fn).parameters.values()
    return [p.name for p in parameters if p.kind in positional]


def _on_event_loop() -> bool:
    return asyncio._get_running_loop() is not None


def _mark_coroutine_function(fn: Callable[..., Any]) -> None:
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(fn)
    else:  # Python 3.11 knows this mark only in asyncio.iscoroutinefunction
        fn._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
