"""Durable agents: Strands' own loop, whose calls of models and tools are steps in a run."""

from __future__ import annotations

import contextlib
import contextvars
import copy
import dataclasses
import threading
import uuid
from collections.abc import AsyncGenerator
from typing import Any

from strands.agent.state import AgentState
from strands.hooks import MessageAddedEvent
from strands.middleware import ExecuteToolStage, InvokeModelStage, ModelStopReason
from strands.models import Model
from strands.telemetry.metrics import EventLoopMetrics

import holdfast
from holdfast.adapters._shared import Place, blocking
from holdfast.adapters.strands import hooks
from holdfast.adapters.strands.asking import answers
from holdfast.adapters.strands.changes import RunState, load, note, pending
from holdfast.adapters.strands.managers import ReduceLater, own_manager, reduce
from holdfast.adapters.strands.model import Asks, as_recorded, durable_model
from holdfast.adapters.strands.options import around
from holdfast.adapters.strands.own import INITIAL, Attributes, Own, above, base_of, options_of
from holdfast.adapters.strands.sessions import Session, is_of_session
from holdfast.adapters.strands.tools import DurableTool


@dataclasses.dataclass(frozen=True)
class Initial:
    """What an agent remembered when it was made durable."""

    messages: list[Any]
    state: dict[str, Any]
    model_state: dict[str, Any]

    @staticmethod
    def of(agent: Any) -> Initial:
        return Initial(
            copy.deepcopy(agent.messages), agent.state.get(), copy.deepcopy(agent._model_state)
        )


class DurableAgent(Own):
    def _holdfast_begin(self, base: Attributes) -> Attributes:
        initial: Initial = base[INITIAL]
        manager = own_manager(base["conversation_manager"])
        retries = copy.copy(base["_retry_strategy"])
        moved = {id(base["conversation_manager"]): manager, id(base["_retry_strategy"]): retries}
        tools = copy.copy(base["tool_registry"])
        tools.registry, tools.dynamic_tools = dict(tools.registry), dict(tools.dynamic_tools)
        callbacks = _moved(base["hooks"], moved)
        session = None
        if base["_session_manager"] is not None:
            session = Session(base["_session_manager"], self)
            callbacks.add_callback(MessageAddedEvent, session.note)
        return {
            "messages": copy.deepcopy(initial.messages),
            "state": RunState(self, initial.state),
            "event_loop_metrics": EventLoopMetrics(),
            "conversation_manager": manager,
            "hooks": callbacks,
            "model": self._holdfast_model(base["model"]),
            "tool_registry": tools,
            "trace_span": None,
            "_aux_model": self._holdfast_model(base.get("_aux_model")),
            "_retry_strategy": retries,
            "_middleware_registry": Stages(base["_middleware_registry"], self),
            "_interrupt_state": hooks.InterruptState(),
            "_concurrency": hooks.ConcurrencyController(base["_concurrency"].mode),
            "_model_state": copy.deepcopy(initial.model_state),
            "_cancel_signal": threading.Event(),
            "_session_manager": None,
            "_holdfast_session": session,
            "_holdfast_place": None,
            "_holdfast_failure": None,
            "_holdfast_appended": 0,
        }

    def _holdfast_begun(self) -> None:
        kept = pending(self)
        if kept is not None:
            load(self, kept)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "state" and type(value) is AgentState and holdfast.current_run() is not None:
            value = RunState(self, value.get())
        Own.__setattr__(self, name, value)

    def __del__(self) -> None:
        # Not as an attribute of the run that happens to be executing.
        if "tool_registry" in base_of(self):
            base_of(self)["tool_registry"].cleanup()

    # Used as ever

    async def stream_async(self, prompt: Any = None, **options: Any) -> AsyncGenerator[Any, None]:
        agent: Any = self
        inner = above(self)
        if holdfast.current_run() is None:
            async for event in inner.stream_async(prompt, **options):
                yield event
            return
        note(agent)
        agent._holdfast_failure = None
        outer = around()
        agent._holdfast_place = Place() if outer is None else await outer.place_of(self)
        session: Session | None = agent._holdfast_session
        if session is not None:
            await session.read(agent._holdfast_place)
        # What runs this agent in turn is told of interrupts, and asks for answers in its turn.
        waits = options_of(self).approvals and outer is None
        while True:
            pending_answers = None
            async with contextlib.aclosing(inner.stream_async(prompt, **options)) as events:
                async for event in events:
                    if waits and "result" in event and event["result"].interrupts:
                        pending_answers = event["result"].interrupts
                        continue
                    if session is not None and "result" in event:
                        await session.write(agent._holdfast_place)
                    yield event
            if (failure := agent._holdfast_failure) is not None:
                raise failure
            if pending_answers is None:
                return
            prompt = await answers(pending_answers)

    def __call__(self, prompt: Any = None, **options: Any) -> Any:
        inner = above(self)
        if holdfast.current_run() is None:
            return inner.__call__(prompt, **options)
        return blocking(
            inner._invoke_async_and_flush(prompt, **options), "use `await agent.invoke_async(...)`"
        )

    def structured_output(self, output_model: Any, prompt: Any = None) -> Any:
        inner = above(self)
        if holdfast.current_run() is None:
            return inner.structured_output(output_model, prompt)
        return blocking(
            inner.structured_output_async(output_model, prompt),
            "use `await agent.structured_output_async(...)`",
        )

    @property
    def tool(self) -> Any:
        if holdfast.current_run() is None:
            return base_of(self)["tool_caller"]
        raise holdfast.Unsupported(
            "agent.tool calls a tool in an event loop of Strands' own, where a run cannot journal "
            "it: call the tool's function in a holdfast.step"
        )

    # Inside of Strands

    async def _append_messages(self, *messages: Any) -> None:
        agent: Any = self
        inner = above(self)
        run = holdfast.current_run()
        if run is not None:
            for message in messages:
                # The same on every replay, so that messages can be handed to steps.
                agent._holdfast_appended += 1
                known = f"{run}/{agent.agent_id}/{agent.name}/{agent._holdfast_appended}"
                message.setdefault("tracking_id", str(uuid.uuid5(uuid.NAMESPACE_OID, known)))
        await inner._append_messages(*messages)

    async def _execute_event_loop_cycle(
        self, *args: Any, **named: Any
    ) -> AsyncGenerator[Any, None]:
        agent: Any = self
        while True:
            events = above(self)._execute_event_loop_cycle(*args, **named)
            try:
                async with contextlib.aclosing(events):
                    async for event in events:
                        yield event
                return
            except ReduceLater as later:
                await reduce(agent, place_of(agent), later.__cause__)

    def _start_cancel_watcher(self, cancel_signal: Any) -> Any:
        # It polls, and in a run each of its sleeps would be a durable timer: so it is outside.
        inner = above(self)
        if holdfast.current_run() is None:
            return inner._start_cancel_watcher(cancel_signal)
        return contextvars.Context().run(inner._start_cancel_watcher, cancel_signal)

    def _holdfast_model(self, model: Model | None) -> Model | None:
        return None if model is None else durable_model(model, self._holdfast_asks)

    def _holdfast_asks(self, model: Model) -> Asks:
        agent: Any = self

        def failure() -> BaseException | None:
            found: BaseException | None = agent._holdfast_failure
            return found

        def fail(error: BaseException) -> None:
            agent._holdfast_failure = error

        return Asks(model, options_of(self), lambda: place_of(agent), failure, fail)


def place_of(agent: Any) -> Place:
    """Where the calls of the agent that is running belong."""
    found: Place | None = agent._holdfast_place
    return found if found is not None and found.is_near else Place()


def _moved(registry: Any, objects: dict[int, Any]) -> Any:
    """The hooks of an agent, where those of its own parts are bound to the run's."""
    made = hooks.HookRegistry()
    for kind, entries in registry._registered_callbacks.items():
        made._registered_callbacks[kind] = [
            dataclasses.replace(entry, callback=_rebound(entry.callback, objects))
            for entry in entries
            if not is_of_session(entry.callback)
        ]
    return made


def _rebound(callback: Any, objects: dict[int, Any]) -> Any:
    instead = objects.get(id(getattr(callback, "__self__", None)))
    return callback if instead is None else callback.__func__.__get__(instead)


class Stages:
    """An agent's middleware, around steps instead of calls."""

    def __init__(self, inner: Any, agent: Any) -> None:
        self._inner, self._agent = inner, agent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def invoke(self, stage: Any, context: Any, terminal: Any) -> Any:
        return self._inner.invoke(stage, context, self._durable(stage, terminal))

    def _durable(self, stage: Any, terminal: Any) -> Any:
        agent, options = self._agent, options_of(self._agent)

        async def model(context: Any) -> AsyncGenerator[Any, None]:
            asked = agent._holdfast_model(context.model)
            async with contextlib.aclosing(terminal(context.replace(model=asked))) as events:
                async for event in events:
                    if isinstance(event, ModelStopReason):
                        as_recorded(asked, event["stop"][-1])
                    yield event

        def tool(context: Any) -> Any:
            if context.tool is None:  # unknown: the model is told so
                return terminal(context)
            durable = DurableTool(context.tool, agent, place_of(agent), options)
            return terminal(context.replace(tool=durable))

        if stage is InvokeModelStage:
            return model
        return tool if stage is ExecuteToolStage else terminal
