"""Flows as steps: the whole of a kickoff is one, and each method of the flow is a step inside.

What a method returned and what it changed in the state is recorded with it, and comes back when it
is replayed: methods that are done do not run again, and of one that had begun only what it had not
called yet. Conditions and routes are CrewAI's own. `@persist` writes in the method's step.

Not kept: attributes of the flow other than its state.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import typing
import uuid
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from crewai.core.providers.human_input import set_provider
from crewai.flow.flow import Flow
from crewai.flow.flow_context import current_flow_method_name
from crewai.flow.human_feedback import HumanFeedbackResult
from crewai.types.usage_metrics import UsageMetrics

import holdfast
from holdfast.adapters._questions import question
from holdfast.adapters._shared import Place, as_step
from holdfast.adapters.crewai import frames, state, values
from holdfast.adapters.crewai.active import (
    ONCE,
    SETTINGS,
    Active,
    Settings,
    Spending,
    entered,
    on_runs_loop,
    spending,
)
from holdfast.adapters.crewai.people import Person, Questions

_SET_FOR_A_RUN = ("input_provider", "persistence", "stream", "tracing")


@dataclass(frozen=True)
class Running:
    """A flow that is being kicked off in a run."""

    flow: Any
    settings: Settings
    place: Place
    questions: Questions


_running: contextvars.ContextVar[Running | None] = contextvars.ContextVar(
    "holdfast.crewai.flow", default=None
)


class DurableFlow(Flow):  # type: ignore[type-arg]  # with one, it would set the state's class
    """What `durable(flow)` makes of a flow."""

    def _running(self) -> Running | None:
        found = _running.get()
        return found if found is not None and found.flow is self else None

    def kickoff(  # type: ignore[override]
        self, inputs: Any = None, input_files: Any = None, **kwargs: Any
    ) -> Any:
        if holdfast.current_run() is None:
            return super().kickoff(inputs, input_files, **kwargs)
        if self.stream:
            return self.stream_events(inputs, input_files, **kwargs)
        return on_runs_loop(self.kickoff_async(inputs, input_files, **kwargs))

    async def kickoff_async(  # type: ignore[override]
        self, inputs: Any = None, input_files: Any = None, **kwargs: Any
    ) -> Any:
        if not self._is_to_be_a_step():
            return await super().kickoff_async(inputs, input_files, **kwargs)
        if self.stream:
            return self.astream(inputs, input_files, **kwargs)
        return (await self._kicked_off(inputs, input_files, kwargs))["output"]

    def astream(  # type: ignore[override]
        self, inputs: Any = None, input_files: Any = None, **kwargs: Any
    ) -> Any:
        if not self._is_to_be_a_step():
            return super().astream(inputs, input_files, **kwargs)
        return frames.session(lambda heard: self._kicked_off(inputs, input_files, kwargs, heard))

    def stream_events(  # type: ignore[override]
        self, inputs: Any = None, input_files: Any = None, **kwargs: Any
    ) -> Any:
        if not self._is_to_be_a_step():
            return super().stream_events(inputs, input_files, **kwargs)
        work = self._kicked_off(inputs, input_files, kwargs, frames.Frames())
        return frames.complete(on_runs_loop(work))

    def _is_to_be_a_step(self) -> bool:
        return holdfast.current_run() is not None and self._running() is None

    def _kicked_off(
        self, inputs: Any, input_files: Any, options: dict[str, Any], heard: Any = None
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """The step, which is named here and now. heard: the frames of its stream."""
        if options.get("from_checkpoint") is not None:
            raise holdfast.Unsupported(
                f"{type(self).__name__}: from_checkpoint= of flows is not for runs: the journal "
                "says where the flow is"
            )
        proceed = functools.partial(super().kickoff_async, inputs, input_files)
        executed = False

        async def work() -> dict[str, Any]:
            nonlocal executed
            executed = True
            with frames.heard(heard) as found:
                kept = await _kick_off(self, settings_of(self), inputs, options, proceed)
            return kept | frames.kept_with(found)

        name = self.name or type(self).__name__
        shown = {"inputs": values.plain(inputs)}
        step = as_step(name, work, shown=shown, retry=ONCE, returns=classes_in(self))

        async def kicked_off() -> dict[str, Any]:
            kept = await step
            if not executed:
                state.restore(self._state, kept["state"], [])
                self._aggregated_usage_metrics = kept["usage"]
                if heard is None:
                    frames.again(kept)
            return kept

        return kicked_off()

    async def _execute_method(
        self, method_name: Any, method: Any, *args: Any, **kwargs: Any
    ) -> tuple[Any, str | None]:
        found = self._running()
        if found is not None:
            method = _stepped(found, str(method_name), method)
        return await super()._execute_method(method_name, method, *args, **kwargs)

    def _persist_method_completion(self, method_name: Any) -> None:
        if self._running() is None:  # otherwise the method's step has done it
            super()._persist_method_completion(method_name)

    def _resolve_feedback_provider(self, feedback_definition: Any) -> Any:
        found = self._running()
        if found is None:
            return super()._resolve_feedback_provider(feedback_definition)
        return Reviewer(found)

    def _collapse_to_outcome(self, feedback: str, outcomes: Any, llm: Any) -> str:
        found = self._running()
        if found is None:
            return super()._collapse_to_outcome(feedback, outcomes, llm)
        if feedback.strip() in outcomes:
            return feedback.strip()  # no model need be asked what that means
        with found.place.entered():
            return super()._collapse_to_outcome(feedback, outcomes, llm)


class Reviewer:
    """Gives the feedback that methods with `@human_feedback` wait for."""

    def __init__(self, found: Running) -> None:
        self._found = found

    async def request_feedback(self, context: Any, flow: Any) -> str:
        shown = question(
            {
                "message": context.message,
                "output": values.plain(context.method_output),
                "outcomes": context.emit,
            }
        )
        name = self._found.questions.name(str(context.method_name))
        decision = await self._found.place.claim(lambda: holdfast.approval(name, shown))
        return decision.comment or ("" if decision.approved else "rejected")


class Asked:
    """Answers `self.ask(...)` in methods: a promise with the name of the method."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    def request_input(self, message: str, flow: Any, metadata: Any = None) -> str:
        method = current_flow_method_name.get("ask")
        name = self._questions.name(method)
        return holdfast.promise(name, str, prompt=question(message)).result()


class Stored:
    """A flow's persistence, of which the state has been read already."""

    def __init__(self, persistence: Any, state: Any) -> None:
        self._persistence, self._state = persistence, state

    def load_state(self, flow_uuid: str) -> Any:
        return self._state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._persistence, name)


async def _kick_off(
    flow: Any, settings: Settings, inputs: Any, options: dict[str, Any], proceed: Any
) -> dict[str, Any]:
    """In the flow's step."""
    found = Running(flow, settings, Place(), Questions(settings))
    _running.set(found)
    before = {name: flow.__dict__.get(name) for name in _SET_FOR_A_RUN}
    flow.__dict__["stream"] = False  # whoever reads it is outside of the step
    flow.__dict__["input_provider"] = Asked(found.questions)
    if flow.tracing is None:
        flow.__dict__["tracing"] = False  # it would ask in the terminal
    wanted = options.get("restore_from_state_id") or (inputs or {}).get("id")
    if wanted is None:
        flow._stamp_state_id(str(uuid.UUID(holdfast.idempotency_key())))
    elif flow.persistence is not None:
        load = functools.partial(asyncio.to_thread, flow.persistence.load_state, wanted)
        flow.__dict__["persistence"] = Stored(flow.persistence, await as_step("load state", load))
    try:
        with entered(Active(settings)):
            output = await proceed(**options)
    finally:
        flow.__dict__.update(before)
    return {"output": output, "state": state.items(flow._state), "usage": flow.usage_metrics}


def _stepped(found: Running, name: str, method: Any) -> Any:
    """The method as a step."""

    async def stepped(*args: Any, **kwargs: Any) -> Any:
        call = MethodCall(found, name, method, args, kwargs)
        kept = await found.place.claim(
            lambda: as_step(
                name,
                call.work,
                shown=_shown(args, kwargs),
                retry=found.settings.policy.retry,
                returns=classes_in(found.flow),
            )
        )
        return call.made_again(kept)

    stepped.__name__ = name
    return stepped


class MethodCall:
    """One execution of a flow's method."""

    def __init__(
        self, found: Running, name: str, method: Any, args: tuple[Any, ...], kwargs: Any
    ) -> None:
        self._found, self._name, self._method = found, name, method
        self._call = functools.partial(method, *args, **kwargs)
        self._executed = False

    async def work(self) -> dict[str, Any]:
        """In the step."""
        self._executed = True
        flow, settings = self._found.flow, self._found.settings
        before = state.snapshot(flow._state)
        set_provider(Person(settings))
        spent = Spending(self._count)
        with entered(Active(settings)), spending(spent), frames.heard() as heard:
            if asyncio.iscoroutinefunction(self._method):
                result = await self._call()
            else:
                result = await _in_thread(self._call)
            if asyncio.iscoroutine(result):
                result = await result
        await _in_thread(
            functools.partial(Flow._persist_method_completion, flow, self._name)  # type: ignore[arg-type]
        )
        changed, removed = state.changes(before, flow._state)
        kept = {"result": result, "state": changed, "removed": removed, "usage": spent.total}
        return kept | frames.kept_with(heard)

    def _count(self, usage: UsageMetrics) -> None:
        flow = self._found.flow
        with flow._usage_metrics_lock:
            flow._aggregated_usage_metrics.add_usage_metrics(usage)

    def made_again(self, kept: dict[str, Any]) -> Any:
        if not self._executed:
            state.restore(self._found.flow._state, kept["state"], kept["removed"])
            self._count(kept["usage"])
            frames.again(kept)
        return kept["result"]


async def _in_thread(work: Any) -> Any:
    """In one made for it: methods take their time, and the event loop's own threads are few."""

    def method() -> Any:  # its name is in the keys, wherever the user's own is defined
        return work()

    method.__qualname__ = "method"
    threads = ThreadPoolExecutor(1, thread_name_prefix="holdfast-flow")
    entering = functools.partial(contextvars.copy_context().run, method)
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, entering)
    finally:
        threads.shutdown(wait=False)


def _shown(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = [_lasting(one) for one in (*args, *kwargs.values())]
    return given[0] if len(given) == 1 else given


def _lasting(value: Any) -> Any:
    """What is the same on every replay."""
    if isinstance(value, HumanFeedbackResult):
        return {"feedback": value.feedback, "outcome": value.outcome}
    return values.plain(values.result_of(value))


# Classes


def durable_flow(flow: Any, settings: Settings) -> Any:
    """Of a flow, or of a class of flows."""
    if isinstance(flow, type):
        return _derived(flow, (_kind(flow),), **{SETTINGS: settings})
    former: Any = type(flow)
    object.__setattr__(flow, "__class__", _kind(former))
    object.__setattr__(flow, SETTINGS, settings)
    return flow


def settings_of(flow: Any) -> Settings:
    found: Settings = flow.__dict__.get(SETTINGS) or getattr(type(flow), SETTINGS)
    return found


@functools.cache
def _kind(kind: Any) -> Any:
    if issubclass(kind, DurableFlow):
        return kind
    return _derived(kind, (kind, DurableFlow))  # its own fields come first


def _derived(kind: Any, bases: tuple[Any, ...], **more: Any) -> Any:
    kept = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    made: Any = type(kind)(kind.__name__, bases, kept | more)
    # Of a class, CrewAI finds only the methods that it defines itself.
    made._flow_definition = kind.flow_definition()
    return made


def class_of(flow: Any) -> Any:
    return flow if isinstance(flow, type) else type(flow)


def another(flow: Any) -> Any:
    """Like it, for one run."""
    kind = class_of(flow)
    given = {} if kind is flow else {name: getattr(flow, name) for name in flow.model_fields_set}
    try:
        return kind(**given)
    except TypeError as error:
        raise holdfast.BadArguments(
            f"{kind.__name__} cannot be made for a run of its own: {error}. Make it in a workflow "
            "of yours, and kick it off there"
        ) from error


def classes_in(flow: Any) -> Any:
    """An annotation that leads to what methods return and to what the state holds."""
    kind = class_of(flow)
    state = kind.model_fields["initial_state"].default
    found: list[Any] = [getattr(kind, "_initial_state_t", None), state, type(state)]
    for name in kind.flow_definition().methods:
        found += values.annotations_of(getattr(kind, name, None))
    values.know(one for one in found if isinstance(one, type) or typing.get_origin(one) is not None)
    return values.known()


HOOKS = {
    f"Flow.{name}": getattr(Flow, name, None)
    for name in (
        "kickoff_async",
        "astream",
        "stream_events",
        "_execute_method",
        "_persist_method_completion",
        "_resolve_feedback_provider",
        "_collapse_to_outcome",
        "_stamp_state_id",
    )
}
