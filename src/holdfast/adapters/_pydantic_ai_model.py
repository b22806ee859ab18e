"""Requests of Pydantic AI's agent to its models: streams, other models in turn, overflows.

`Asked` stands in the agent's place before the step. A streamed answer is read inside the step and
relayed to the agent while it comes, but for its last event: that follows when the whole is durable,
so that nobody acts on an answer that might be lost. What is replayed comes at once, event by event
as it came. A stream that breaks when a part of it was handed on is not tried again: its reader
cannot take back what it has read. A reader who leaves early waits for the rest, which is recorded.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from pydantic_ai import _utils, exceptions
from pydantic_ai.durable_exec import JSON_CODEC
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.messages import (
    FinalResultEvent,
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
)
from pydantic_ai.models import CompletedStreamedResponse, Model, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel

import holdfast
from holdfast.adapters._relay import Relay
from holdfast.adapters._shared import leave_retries_to_the_step

T = TypeVar("T")

OnOverflow = Callable[[list[ModelMessage]], Any]

instead: ContextVar[Model | None] = ContextVar("holdfast_pydantic_ai_instead", default=None)
"""The model to be asked instead of the agent's own."""


def _register_errors(kind: type[Exception] = ModelHTTPError) -> None:
    """The framework raises errors of private classes that have the names of public ones: they are
    recorded under names of their own, so that whoever catches them catches them on replay."""
    for found in kind.__subclasses__():
        if getattr(exceptions, found.__qualname__, None) is not found:
            holdfast.register(found, name=f"pydantic-ai HTTP {found.__qualname__}")
        _register_errors(found)


_register_errors()


class Another(WrapperModel):
    """A model that is asked when the one before it has failed: what it is sent was made ready for
    that one."""

    async def request(self, messages: Any, model_settings: Any, parameters: Any) -> ModelResponse:
        ready = self.wrapped.prepare_messages(messages, parameters)
        return await self.wrapped.request(ready, model_settings, parameters)

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, parameters: Any, run_context: Any = None
    ) -> AsyncGenerator[StreamedResponse]:
        ready = self.wrapped.prepare_messages(messages, parameters)
        async with self.wrapped.request_stream(
            ready, model_settings, parameters, run_context
        ) as stream:
            yield stream


def leave_retries_of(model: Model) -> None:
    """To the step."""
    for inner in getattr(model, "models", ()):
        leave_retries_of(inner)
    while isinstance(model, WrapperModel):
        model = model.wrapped
    leave_retries_to_the_step(getattr(model, "client", None))


class Asked(WrapperModel):
    """The model whose requests are steps."""

    def __init__(
        self, wrapped: Model, models: tuple[Model, ...], on_overflow: OnOverflow | None
    ) -> None:
        super().__init__(wrapped)
        self._models, self._on_overflow = models, on_overflow

    def _with_serving_wrapper(self, wrap: Callable[[Model], Model]) -> Model:
        inner = self.wrapped._with_serving_wrapper(wrap)
        return self if inner is self.wrapped else Asked(inner, self._models, self._on_overflow)

    async def request(self, messages: Any, model_settings: Any, parameters: Any) -> ModelResponse:
        return await self._answer(
            messages, lambda given: self.wrapped.request(given, model_settings, parameters)
        )

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, parameters: Any, run_context: Any = None
    ) -> AsyncGenerator[StreamedResponse]:
        relay = Live()

        async def ask(given: list[ModelMessage]) -> ModelResponse:
            async with self.wrapped.request_stream(
                given, model_settings, parameters, run_context
            ) as read:
                return read.get()

        async def call() -> ModelResponse:
            relays.set(relay)
            return await self._answer(messages, ask)

        answer = asyncio.ensure_future(call())
        try:
            await relay.begun(answer)
            yield Relayed(relay, answer, parameters)
        finally:
            await asyncio.wait({answer})
        await answer

    async def _answer(
        self, messages: list[ModelMessage], ask: Callable[[list[ModelMessage]], Awaitable[T]]
    ) -> T:
        try:
            return await self._first_answer(messages, ask)
        except holdfast.ContextOverflow:
            if self._on_overflow is None:
                raise
        shorter = self._on_overflow(messages)
        if inspect.isawaitable(shorter):
            shorter = await shorter
        return await self._first_answer(list(shorter), ask)

    async def _first_answer(
        self, messages: list[ModelMessage], ask: Callable[[list[ModelMessage]], Awaitable[T]]
    ) -> T:
        for model in (None, *self._models[:-1]):
            try:
                return await _ask(model, messages, ask)
            except holdfast.ContextOverflow:
                if self._on_overflow is not None or not self._models:
                    raise
            except (ModelAPIError, holdfast.StepTimedOut):
                if not self._models:
                    raise
        return await _ask(self._models[-1], messages, ask)


async def _ask(
    model: Model | None,
    messages: list[ModelMessage],
    ask: Callable[[list[ModelMessage]], Awaitable[T]],
) -> T:
    token = instead.set(model)
    try:
        return await ask(messages)
    finally:
        instead.reset(token)


# Streams


@functools.cache
def let_pieces_come_singly() -> None:
    """Inside of runs no pieces are gathered for a while (`debounce_by=`): the timers of a run's
    body are durable, and how many there are must not depend on how fast a model speaks."""
    plain = _utils.group_by_temporal

    @functools.wraps(plain)
    def group_by_temporal(pieces: Any, interval: float | None) -> Any:
        return plain(pieces, interval if holdfast.current_run() is None else None)

    setattr(_utils, "group_by_temporal", group_by_temporal)  # noqa: B010


class Live(Relay[ModelResponseStreamEvent]):
    """What one streamed request hands on to the agent, live or from the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: list[Any] = []  # of what the step returned

    # In the step

    async def hear(self, ctx: object, events: AsyncIterator[ModelResponseStreamEvent]) -> None:
        recorded = self.begins()
        held: ModelResponseStreamEvent | None = None
        try:
            async for event in events:
                if held is not None:
                    self.hand_on(held)
                held = event
                # Now: whoever gets it may change it.
                recorded.append(JSON_CODEC.dump(ModelResponseStreamEvent, event))
        except Exception as error:
            self.refuse_if_read("the model", error)
            raise

    def result(self, value: object) -> dict[str, Any]:
        return {"value": value, "events": list(self.recorded)}

    # For the agent

    def events(
        self, answer: asyncio.Future[ModelResponse]
    ) -> AsyncGenerator[ModelResponseStreamEvent]:
        return self.read(
            answer,
            lambda _: self.answered,
            made=lambda event: JSON_CODEC.load(ModelResponseStreamEvent, event),
        )


relays: ContextVar[Live | None] = ContextVar("holdfast_pydantic_ai_relay", default=None)


class Relayed(CompletedStreamedResponse):
    """The stream as the agent reads it."""

    def __init__(self, relay: Live, answer: asyncio.Future[ModelResponse], parameters: Any):
        known = answer.result() if answer.done() else ModelResponse(parts=[])
        super().__init__(known, model_request_parameters=parameters, replay_events=[])
        self._relay, self._answer = relay, answer

    def __aiter__(self) -> AsyncIterator[ModelResponseStreamEvent]:
        if self._event_iterator is None:
            self._event_iterator = self._events()
        return self._event_iterator

    async def _events(self) -> AsyncIterator[ModelResponseStreamEvent]:
        async for event in self._relay.events(self._answer):
            self._parts_manager.apply_event(event)
            if isinstance(event, FinalResultEvent):
                self.final_result_event = event
            yield event
        self.response = await self._answer
        self.state = self.response.state
        self._finished = True

    def get(self) -> ModelResponse:
        return self.response if self._finished else super().get()
