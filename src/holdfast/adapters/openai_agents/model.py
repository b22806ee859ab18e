"""A model's calls as steps, streamed and not.

A call is keyed by a counter in its scope; what the model is given is the step's input, without the
instructions, which may hold the date and may be improved while runs are under way. What is handed
to the SDK is always what the journal holds, so that a run goes on the same with a replayed answer.

A stream is handed on while it comes, but for its end: the SDK acts on that, so it follows when the
whole is durable. A stream that breaks when a part of it was handed on is not tried again: its
reader cannot take back what it has read.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from agents import Model, ModelProvider, ModelResponse, ModelSettings

import holdfast
from holdfast.adapters._relay import Relay
from holdfast.adapters._shared import (
    as_step,
    ask_in_order,
    is_overflow,
    leave_retries_to_the_step,
)
from holdfast.adapters.openai_agents import hooks, wire
from holdfast.adapters.openai_agents.options import Items, Options, active, place

# An answer that has only begun can still be begun again.
_PRELUDE = ("response.created", "response.in_progress", "response.queued")
_END = ("response.completed", "response.incomplete", "response.failed", "response.error", "error")


@dataclasses.dataclass(frozen=True)
class Asking:
    """The arguments of one call of a model."""

    instructions: str | None
    input: Items
    settings: ModelSettings
    rest: tuple[Any, ...]
    named: dict[str, Any]

    def shown(self, model: Model) -> Any:
        return {"model": _name(model), "input": wire.plain(self.input)}

    def within_step(self) -> tuple[Any, ...]:
        headers = dict(self.settings.extra_headers or {})
        headers.setdefault("Idempotency-Key", holdfast.idempotency_key())
        settings = dataclasses.replace(self.settings, extra_headers=headers)
        return (self.instructions, self.input, settings, *self.rest)


class DurableModel(Model):
    """Outside of runs it is the model that it was."""

    def __init__(self, inner: Model, options: Options) -> None:
        self._inner, self._options = inner, options

    def __getattr__(self, name: str) -> Any:
        if "_inner" not in self.__dict__:  # while it is being copied
            raise AttributeError(name)
        return getattr(self._inner, name)

    async def get_response(
        self,
        system_instructions: str | None,
        input: Items,
        model_settings: ModelSettings,
        *rest: Any,
        **named: Any,
    ) -> ModelResponse:
        if holdfast.current_run() is None:
            return await self._inner.get_response(
                system_instructions, input, model_settings, *rest, **named
            )
        asking = Asking(system_instructions, input, model_settings, rest, named)

        async def ask(model: Model, asking: Asking) -> Any:
            return await self._step(model, asking, lambda: _whole(model, asking))

        return wire.response_from(await self._answer(asking, ask))

    async def stream_response(
        self,
        system_instructions: str | None,
        input: Items,
        model_settings: ModelSettings,
        *rest: Any,
        **named: Any,
    ) -> AsyncIterator[Any]:
        if holdfast.current_run() is None:
            inner = self._inner.stream_response(
                system_instructions, input, model_settings, *rest, **named
            )
            async for event in inner:
                yield event
            return
        asking = Asking(system_instructions, input, model_settings, rest, named)
        live = _Live()

        async def ask(model: Model, asking: Asking) -> Any:
            return await self._step(model, asking, lambda: live.relay(model, asking))

        async def answer() -> Any:
            return await self._answer(asking, ask, may_turn=lambda: not live.handed_on)

        call = asyncio.ensure_future(answer())
        events = live.read(call, list, made=wire.event_from, cancels=True)
        async with contextlib.aclosing(events):
            async for event in events:
                yield event

    async def close(self) -> None:
        await self._inner.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._inner._cleanup_on_run_end(owner)

    def get_retry_advice(self, request: Any) -> Any:
        return self._inner.get_retry_advice(request)

    # Steps

    async def _answer(
        self,
        asking: Asking,
        ask: Callable[[Model, Asking], Awaitable[Any]],
        may_turn: Callable[[], bool] = lambda: True,
    ) -> Any:
        models = [self._inner, *map(_found, self._options.models)]

        async def ask_with(model: Model, input: Items) -> Any:
            return await ask(model, dataclasses.replace(asking, input=input))

        shorten = self._options.on_overflow
        return await ask_in_order(
            models, asking.input, ask_with, on_overflow=shorten, may_turn=may_turn
        )

    async def _step(self, model: Model, asking: Asking, work: Callable[[], Awaitable[Any]]) -> Any:
        async def call() -> Any:
            try:
                # The step tries again; the client need not. The SDK would copy it for each call.
                is_quiet = leave_retries_to_the_step(getattr(model, "_client", None))
                with hooks.provider_managed_retries_disabled(not is_quiet):
                    return await work()
            except Exception as error:
                if not is_overflow(error):
                    raise
                raise holdfast.ContextOverflow(f"{_name(model)}: {error}") from error

        shown, retry = asking.shown(model), self._options.policy.retry
        return await place().claim(lambda: as_step("model", call, shown=shown, retry=retry))


async def _whole(model: Model, asking: Asking) -> Any:
    return wire.response(await model.get_response(*asking.within_step(), **asking.named))


class _Live(Relay[Any]):
    """What one streamed call hands on to its reader, live or from the journal."""

    async def relay(self, model: Model, asking: Asking) -> Any:
        """In the step: reads the stream to its end."""
        recorded = self.begins()
        held: list[Any] = []
        ended = False
        try:
            async for event in model.stream_response(*asking.within_step(), **asking.named):
                kind = getattr(event, "type", "")
                recorded.append(wire.event(event))
                ended = ended or kind in _END
                if ended:
                    continue
                if kind in _PRELUDE and not self.handed_on:
                    held.append(event)
                else:
                    self.hand_on(*held, event)
                    held.clear()
        except Exception as error:
            self.refuse_if_read(_name(model), error)
            raise
        return recorded


class DurableProvider(ModelProvider):
    """Finds models by name, as the provider that it stands for does."""

    def __init__(self, inner: ModelProvider, options: Options) -> None:
        self._inner, self._options = inner, options

    def get_model(self, model_name: str | None) -> Model:
        return as_durable(self._inner.get_model(model_name), self._options)

    async def aclose(self) -> None:
        await self._inner.aclose()


def as_durable(model: Model, options: Options) -> Model:
    inner = model._inner if isinstance(model, DurableModel) else model
    return DurableModel(inner, options)


def _found(model: str | Model) -> Model:
    """One of the models to turn to; a name means what it means to the run's own provider."""
    if not isinstance(model, str):
        return model
    now = active()
    assert now is not None, "only the runner asks a durable model in a run"
    return now.provider.get_model(model)


def _name(model: Model) -> str:
    name = getattr(model, "model", None)
    return name if isinstance(name, str) else type(model).__name__
