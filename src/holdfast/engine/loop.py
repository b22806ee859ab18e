"""What is wrapped on the event loop, so that plain asyncio code can be replayed.

- `call_soon`: handles whose context belongs to a run are counted, so that it is known when the run
  is quiet.
- the task factory: a task made inside a run gets a scope of its own, when it is made.
- `call_at`, `call_later`: in a workflow's body these are durable timers, and with them
  `asyncio.sleep`, `asyncio.timeout` and `wait_for`. In a step's body time is real.
- `time`: in a workflow's body it stands still between completions. `asyncio.timeout` compares it
  with its deadline, and would otherwise behave differently when the process was slow.
- `run_in_executor`: work sent to a thread gets a scope of its own; a sync step there is a step.
- `call_exception_handler`: what a suspended run leaves behind is not reported as an error.

Wrapped are the loop *instance*'s methods, chained to what was there and put back at the end. Code
outside of runs pays one context look-up per call. What wakes a run from elsewhere (raw sockets,
other threads' `call_soon_threadsafe`) is not journaled: it happens again on replay.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from holdfast.engine.context import Scope, current, scope
from holdfast.engine.depth import refuse_if_too_deep
from holdfast.engine.frame import Frame, Ring
from holdfast.engine.preview import read_in
from holdfast.errors import Suspended

_WRAPPED = (
    "call_soon",
    "call_later",
    "call_at",
    "run_in_executor",
    "time",
    "call_exception_handler",
)


class Timers(Protocol):
    """Makes durable timers and runs thread work for a workflow's body; see wait.py and
    thread.py."""

    def timer(
        self,
        where: Scope,
        delay_seconds: float,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> Any: ...

    def submit(
        self, where: Scope, executor: Any, func: Callable[..., Any], args: tuple[Any, ...]
    ) -> Any: ...


class CountedHandle:
    """A handle the loop holds for a run. It counts down once: when it has run, or when
    cancelled."""

    __slots__ = ("_args", "_callback", "_handle", "_hooks", "_open", "frame")

    def __init__(
        self, hooks: LoopHooks, frame: Frame, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        self._hooks, self.frame, self._callback, self._args = hooks, frame, callback, args
        self._open = True
        self._handle: asyncio.Handle | None = None
        frame.enter()

    def __call__(self) -> None:
        hooks = self._hooks
        before, hooks.active = hooks.active, self
        try:
            self._callback(*self._args)
        except (KeyboardInterrupt, SystemExit):
            # It ends the process. Handed back as if that was not its doing, it would do so again
            # and again.
            if not self.frame.run.closed:
                self.frame.run.evict()
            raise
        finally:
            hooks.active = before
            self._handle = None  # they know each other: without this only the collector frees them
            self._close()

    def _close(self) -> None:
        if self._open:
            self._open = False
            # A traceback may keep the frame of `__call__`, and so this, and the task that has it.
            del self._callback, self._args
            self.frame.leave()

    def move_to(self, frame: Frame) -> None:
        """The running code passes from one frame into another: its handle counts there now."""
        before, self.frame = self.frame, frame
        frame.enter()
        before.leave()

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._hooks.active is not self:  # a callback that calls itself off is still running
            self._close()

    def cancelled(self) -> bool:
        return self._handle is not None and self._handle.cancelled()


class LoopHooks:
    """Installed once per loop, however many apps are open on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timers: Timers) -> None:
        self.loop = loop
        self.timers = timers
        self.active: CountedHandle | None = None
        self.users = 0
        self.thread = threading.get_ident()
        self._call_soon = loop.call_soon
        self._call_later = loop.call_later
        self._call_at = loop.call_at
        self._run_in_executor = loop.run_in_executor
        self._time = loop.time
        self._call_exception_handler = loop.call_exception_handler
        self._factory = loop.get_task_factory()
        self._before = {name: vars(loop)[name] for name in _WRAPPED if name in vars(loop)}

    def install(self) -> None:
        for name in _WRAPPED:
            setattr(self.loop, name, getattr(self, f"_hook_{name}"))
        self.loop.set_task_factory(self._task_factory)  # type: ignore[arg-type]

    def uninstall(self) -> None:
        for name in _WRAPPED:
            if getattr(self.loop, name, None) != getattr(self, f"_hook_{name}"):
                continue  # somebody wrapped ours meanwhile, and goes on calling it
            if name in self._before:
                setattr(self.loop, name, self._before[name])
            else:
                delattr(self.loop, name)  # the class's own method comes back into view
        if self.loop.get_task_factory() == self._task_factory:
            self.loop.set_task_factory(self._factory)

    # The wrappers

    def _hook_call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Any:
        where = current.get() if context is None else context.get(current)
        if where is None:
            return self._call_soon(callback, *args, context=context)
        handle = CountedHandle(self, where.frame, callback, args)
        try:
            handle._handle = self._call_soon(handle, context=context)
        except BaseException:  # of Python's recursion limit: without a call, so that it comes here
            where.frame.ready -= 1
            where.frame.run.ready_inside -= bool(where.frame.key)
            raise
        return handle

    def _hook_call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Any:
        where = current.get() if context is None else context.get(current)
        if where is None or where.frame.key:
            make = self._call_later if current.get() is None else self.call_later
            if where is None:
                return make(delay, callback, *args, context=context)
            ring = Ring(callback)
            return where.frame.keep(make(delay, ring, *args, context=context), ring)
        when = self._hook_time() + delay
        if context is None:
            context = contextvars.copy_context()
        return self.timers.timer(where, delay, when, callback, args, context)

    def _hook_call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Any:
        where = current.get() if context is None else context.get(current)
        if where is None:
            return self._call_at(when, callback, *args, context=context)
        if where.frame.key:
            ring = Ring(callback)
            return where.frame.keep(self._call_at(when, ring, *args, context=context), ring)
        delay = when - where.frame.run.now / 1e6
        if context is None:
            context = contextvars.copy_context()
        return self.timers.timer(where, delay, when, callback, args, context)

    def _hook_time(self) -> float:
        where = current.get()
        if where is None or where.frame.key:
            return self._time()
        return where.frame.run.now / 1e6

    def _hook_run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        where = scope()
        if where is None:
            return self._run_in_executor(executor, func, *args)
        return self.timers.submit(where, executor, func, args)

    def _hook_call_exception_handler(self, context: dict[str, Any]) -> None:
        # A run that left memory leaves futures behind (a gather's, a shield's) that nobody awaits.
        if not isinstance(context.get("exception"), Suspended):
            self._call_exception_handler(context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """The loop's own, for the engine."""
        return self._run_in_executor(executor, func, *args)

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """The loop's own, in real time, whoever asks: called outside of any run, so that what it
        calls in turn (`time`, `call_at`) does not take it for the run's."""
        if context is None:
            context = contextvars.copy_context()
        outside = contextvars.Context()
        return outside.run(self._call_later, delay, callback, *args, context=context)

    def real_time(self) -> float:
        """The loop's own, whoever asks."""
        return self._time()

    def soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Calls back outside of any run."""
        self._call_soon(callback, *args, context=contextvars.Context())

    def _task_factory(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **kwargs: Any
    ) -> Any:
        make = self._factory or _plain_task
        where = current.get()
        if where is None:
            return make(loop, coro, **kwargs)
        refuse_if_too_deep("create_task()")
        own = where.branch(task_name(coro))
        given: contextvars.Context | None = kwargs.get("context")
        if where.frame.run.previews:
            own.after = read_in((given.run(current.get) if given is not None else None) or where)
        if given is not None:
            given.run(current.set, own)
            task: Any = make(loop, coro, **kwargs)
        else:
            context = contextvars.copy_context()
            context.run(current.set, own)
            # A factory of somebody else's may not know `context=`; a task copies the one it is made
            # in.
            kwargs.pop("context", None)
            task = context.run(functools.partial(make, loop, coro, **kwargs))
        where.frame.run.add_task(task)
        return task


def _plain_task(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **kwargs: Any
) -> asyncio.Task[Any]:
    return asyncio.Task(coro, loop=loop, **kwargs)


def task_name(coro: object) -> str:
    """A coroutine's qualified name, without the noise."""
    name = getattr(coro, "__qualname__", None) or type(coro).__qualname__
    return str(name).replace(".<locals>", "")


_installed: dict[asyncio.AbstractEventLoop, LoopHooks] = {}


def hook(loop: asyncio.AbstractEventLoop, timers: Timers) -> LoopHooks:
    hooks = _installed.get(loop)
    if hooks is None:
        hooks = _installed[loop] = LoopHooks(loop, timers)
        hooks.install()
    hooks.users += 1
    return hooks


def unhook(hooks: LoopHooks) -> None:
    hooks.users -= 1
    if not hooks.users:
        hooks.uninstall()
        del _installed[hooks.loop]
