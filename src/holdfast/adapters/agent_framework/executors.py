"""Executors of a workflow as steps.

What an executor's handler did is recorded: what it sent and emitted, what it wrote into the
workflow's state, and what it remembers (`on_checkpoint_save`). On replay it is not called: the
executor gets its memory back (`on_checkpoint_restore`), and the workflow what was recorded. Inside
of a handler that had not finished, what it had called is not called again.

An executor without hooks for checkpoints is remembered by its attributes, as far as they are data.
A workflow inside a workflow is no step: its own executors are.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import Awaitable, Callable
from typing import Any

from agent_framework import (
    AgentExecutor,
    AgentResponseUpdate,
    Executor,
    Workflow,
    WorkflowErrorDetails,
    WorkflowEvent,
    WorkflowEventSource,
    WorkflowExecutor,
    WorkflowMessage,
)
from agent_framework._workflows._state import State

import holdfast
from holdfast.adapters._shared import as_step, is_plain, is_same
from holdfast.adapters.agent_framework import values
from holdfast.adapters.agent_framework.active import Active, active, entered, place

_INVOKED, _COMPLETED, _FAILED = "executor_invoked", "executor_completed", "executor_failed"
_REQUEST, _OUTPUTS = "request_info", ("output", "intermediate")
_HELD = (_COMPLETED, _FAILED, _REQUEST)


def make_durable(workflow: Workflow) -> None:
    """The executors of a copy, and of the workflows inside it."""
    returns = values.classes_in(workflow)
    for executor in workflow.executors.values():
        if isinstance(executor, WorkflowExecutor):
            make_durable(executor.workflow)
            execute = functools.partial(_nested, executor, executor.execute)
        else:
            execute = functools.partial(_one_by_one, asyncio.Lock(), executor, returns)
        executor.__dict__["execute"] = execute


async def _one_by_one(
    lock: asyncio.Lock, executor: Executor, returns: Any, *args: Any, **named: Any
) -> None:
    """What an executor remembers after one message must not hold half of the next."""
    async with lock:
        await _step(
            executor, functools.partial(Executor.execute, executor), returns, *args, **named
        )


async def _nested(
    executor: WorkflowExecutor, original: Callable[..., Awaitable[None]], *args: Any, **named: Any
) -> None:
    now = active()
    if now is None:
        return await original(*args, **named)

    async def inside(now: Active) -> None:
        with entered(Active(now.options, executor.id)):
            await original(*args, **named)

    await place().branch(executor.id, inside(now))


async def _step(
    executor: Executor,
    original: Callable[..., Awaitable[None]],
    returns: Any,
    message: Any,
    sources: list[str],
    state: State,
    context: Any,
    **named: Any,
) -> None:
    now = active()
    if now is None:
        return await original(message, sources, state, context, **named)
    memory = Memory(executor)
    done = Done(executor.id, message)

    async def work() -> Any:
        await memory.begin()
        done.begin(context, state)
        asks_itself = isinstance(executor, AgentExecutor)
        with entered(Active(now.options, executor.id, asks_itself=asks_itself)):
            await original(message, sources, done.state, done, **named)
        return {**done.record(), "memory": await memory.save()}

    given = message.data if isinstance(message, WorkflowMessage) else message
    try:
        await done.hand_on_kept(context)
        recorded = await place().claim(
            lambda: as_step(
                executor.id,
                work,
                shown=values.shown(given),
                retry=now.options.policy.retry,
                returns=returns,
            )
        )
    except BaseException as error:
        done.preview.end(returned=False)
        if isinstance(error, Exception):
            await done.failed(context, error)
        raise
    done.preview.end()
    await memory.restore(recorded["memory"])
    await done.hand_on(context, state, recorded)


class Memory:
    """What an executor remembers from one message to the next."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._has_hooks = type(executor).on_checkpoint_save is not Executor.on_checkpoint_save
        self._before: Any = None
        self._ran = False

    async def begin(self) -> None:
        """In the step, before each try: what an earlier one left behind is undone."""
        if self._ran:
            await self._set(self._before)
        else:
            self._before = copy.deepcopy(await self._all())
        self._ran = True

    async def save(self) -> Any:
        after = await self._all()
        if self._has_hooks:
            return after
        changed = {k: v for k, v in after.items() if not is_same(self._before.get(k, self), v)}
        return changed or None

    async def restore(self, saved: Any) -> None:
        if not self._ran and saved is not None:
            await self._set(saved)

    async def _all(self) -> dict[str, Any]:
        if self._has_hooks:
            return await self._executor.on_checkpoint_save()
        return {name: item for name, item in vars(self._executor).items() if is_plain(item)}

    async def _set(self, saved: dict[str, Any]) -> None:
        if self._has_hooks:
            await self._executor.on_checkpoint_restore(saved)
        else:
            self._executor.__dict__.update(copy.deepcopy(saved))


class NotedState(State):
    """The workflow's state, with a note of what one handler writes."""

    def __init__(self, inner: State) -> None:
        self._committed, self._pending = inner._committed, inner._pending
        self.written: dict[str, Any] = {}
        self.deleted: list[str] = []

    def set(self, key: str, value: Any) -> None:
        super().set(key, value)
        self.written[key] = copy.deepcopy(value)

    def delete(self, key: str) -> None:
        super().delete(key)
        self.written.pop(key, None)
        self.deleted.append(key)


class Done:
    """What one handler does to the workflow around it; in the step it stands for its context.

    Events are handed on while they come, until one comes that somebody could act upon: an output
    that is no piece of a stream, a request, the end. That and what follows waits for the commit.
    """

    def __init__(self, executor_id: str, message: Any) -> None:
        self._id = executor_id
        self._message = message
        self._inner: Any = None
        self._events: list[WorkflowEvent[Any]] = []
        self._handed_on = 0
        self.preview = holdfast.Preview(
            lambda: [self._lean(event) for event in self._events[: self._handed_on]]
        )

    def begin(self, context: Any, state: State) -> None:
        self._inner, self.state = context, NotedState(state)
        self._sent: list[list[Any]] = []
        self._events, self._handed_on = [], 0
        self._holds = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    # For the handler

    async def send_message(self, message: WorkflowMessage) -> None:
        self._sent.append([message.data, message.target_id])

    async def add_event(self, event: WorkflowEvent[Any]) -> None:
        self._events.append(event)
        self._holds = self._holds or event.type in _HELD
        if event.type in _OUTPUTS and not isinstance(event.data, AgentResponseUpdate):
            self._holds = True
        if not self._holds:
            self._handed_on += 1
            self.preview.begin()
            await self._inner.add_event(event)

    async def add_request_info_event(self, event: WorkflowEvent[Any]) -> None:
        await self.add_event(event)

    # Recorded, and again

    def record(self) -> dict[str, Any]:
        state: Any = self.state
        found = {
            "sent": self._sent,
            "events": [self._lean(event) for event in self._events],
            "state": state.written,
            "deleted": state.deleted,
        }
        return {name: value for name, value in found.items() if value}

    def _lean(self, event: WorkflowEvent[Any]) -> Any:
        """What begins and ends a handler says again what it was given and what it made."""
        is_known = event.type == _INVOKED
        if event.type == _COMPLETED:
            is_known = len(event.data or ()) == len(self._sent) + len(_outputs(self._events))
        return [event.type] if is_known else event

    def _full(self, event: Any, recorded: dict[str, Any]) -> WorkflowEvent[Any]:
        if isinstance(event, WorkflowEvent):
            return event
        given = self._message
        data: Any = given.data if isinstance(given, WorkflowMessage) else given
        if event[0] == _COMPLETED:
            sent = [one[0] for one in recorded.get("sent", ())]
            data = [*sent, *_outputs(recorded["events"])] or None
        return WorkflowEvent(
            event[0],
            executor_id=self._id,
            data=copy.deepcopy(data),
            origin=WorkflowEventSource.FRAMEWORK,
        )

    async def hand_on(self, context: Any, state: State, recorded: dict[str, Any]) -> None:
        ran = self._inner is not None
        events = self._events[self._handed_on :] if ran else recorded.get("events", [])
        for found in events:
            event = self._full(found, recorded)
            if event.type == _REQUEST:
                await context.add_request_info_event(event)
            else:
                await context.add_event(event)
        for data, target in recorded.get("sent", ()):
            await context.send_message(WorkflowMessage(data, self._id, target_id=target))
        if not ran:
            for key, value in recorded.get("state", {}).items():
                state.set(key, value)
            for key in recorded.get("deleted", ()):
                if state.has(key):
                    state.delete(key)

    async def hand_on_kept(self, context: Any) -> None:
        """Of a handler that did not return, what was handed on."""
        for found in list(self.preview.kept):
            await context.add_event(self._full(found, {}))

    async def failed(self, context: Any, error: Exception) -> None:
        if self._inner is None and not self.preview.kept:
            await context.add_event(self._full([_INVOKED], {}))
        details = WorkflowErrorDetails.from_exception(error, executor_id=self._id)
        origin = WorkflowEventSource.FRAMEWORK
        event: WorkflowEvent[Any] = WorkflowEvent(
            "executor_failed", executor_id=self._id, details=details, origin=origin
        )
        await context.add_event(event)


def _outputs(events: list[Any]) -> list[Any]:
    found = [event for event in events if isinstance(event, WorkflowEvent)]
    return [event.data for event in found if event.type in _OUTPUTS]
