"""A model's calls as steps, streamed and not.

A call is keyed by its agent's name and a counter; the conversation is the step's input, without the
instructions, which may hold the date and may be improved while runs are under way. What ADK acts on
is always what the journal holds, so that a run goes on the same with a replayed answer.

The pieces of a stream are handed on while they come; the whole that ADK acts on follows when it is
durable. A stream that breaks when a part of it was handed on is not tried again: its reader cannot
take back what it has read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

from google.adk.events import Event
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types

import holdfast
from holdfast.adapters._relay import Relay
from holdfast.adapters._shared import as_step, ask_in_order, is_overflow
from holdfast.adapters.google_adk.code import wrap_executor
from holdfast.adapters.google_adk.options import Active, Contents, active, claim


def durable_models(get_llm: Callable[..., Any]) -> Callable[..., Any]:
    """Around what finds the model for an invocation."""

    async def get(flow: Any, invocation_context: Any) -> Any:
        found = await get_llm(flow, invocation_context)
        now = active()
        if now is None:
            return found
        if invocation_context.run_config.support_cfc:
            raise holdfast.Unsupported(
                "compositional function calling is served live, and a live session cannot be "
                "journaled: leave RunConfig.support_cfc out inside of runs"
            )
        wrap_executor(invocation_context.agent)
        return DurableLlm(found, now, invocation_context.agent.name)

    return get


class DurableLlm:
    """What a flow uses of a model: it asks for an answer."""

    def __init__(self, inner: BaseLlm, now: Active, agent: str) -> None:
        self._inner, self._now, self._agent = inner, now, agent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        live = _Live(stream)
        call = asyncio.ensure_future(self._answer(llm_request, live))
        responses = live.read(call, list, made=_response)
        try:
            async for response in responses:
                yield response
        finally:
            call.cancel()  # the reader may have left
            await responses.aclose()

    async def _answer(self, request: LlmRequest, live: _Live) -> list[Any]:
        return await ask_in_order(
            [self._inner, *self._now.options.models],
            list(request.contents),
            lambda model, contents: self._step(model, request, contents, live),
            on_overflow=self._now.options.on_overflow,
            may_turn=lambda: not live.handed_on,
        )

    async def _step(
        self, model: BaseLlm, request: LlmRequest, contents: Contents, live: _Live
    ) -> list[Any]:
        name = model.model if model is not self._inner else request.model or model.model

        async def call() -> list[Any]:
            try:
                return await live.relay(model, _within_step(request, name, contents))
            except Exception as error:
                if not is_overflow(error):
                    raise
                raise holdfast.ContextOverflow(f"{name}: {error}") from error

        shown = {"model": name, "contents": [_plain(content) for content in contents]}
        retry = self._now.options.policy.retry
        step = f"{self._agent}.model"
        recorded: list[Any] = await claim(
            self._now, lambda: as_step(step, call, shown=shown, retry=retry)
        )
        return recorded


def durable_summaries(summarize: Callable[..., Any]) -> Callable[..., Any]:
    """Around what asks a model for a summary of events, when an invocation has ended."""

    async def call(self: Any, *, events: list[Event]) -> Event | None:
        now = active()
        if now is None:
            found: Event | None = await summarize(self, events=events)
            return found

        async def work() -> Any:
            made = await summarize(self, events=events)
            return None if made is None else made.model_dump(mode="json", exclude_none=True)

        retry = now.options.policy.retry
        recorded = await claim(now, lambda: as_step("summary", work, retry=retry))
        return None if recorded is None else Event.model_validate_json(json.dumps(recorded))

    return call


def _within_step(request: LlmRequest, model: str, contents: Contents) -> LlmRequest:
    """A copy for one try: models change what they are given."""
    config = (request.config or types.GenerateContentConfig()).model_copy()
    options = (config.http_options or types.HttpOptions()).model_copy()
    options.headers = {"Idempotency-Key": holdfast.idempotency_key(), **(options.headers or {})}
    options.retry_options = types.HttpRetryOptions(attempts=1)  # the step tries again
    config.http_options = options
    contents = [content.model_copy() for content in contents]
    return request.model_copy(update={"model": model, "config": config, "contents": contents})


class _Live(Relay[LlmResponse]):
    """One answer: what it hands on while it comes, and what is recorded of it."""

    def __init__(self, stream: bool) -> None:
        super().__init__()
        self._stream = stream

    async def relay(self, model: BaseLlm, request: LlmRequest) -> list[Any]:
        """In the step: reads the answer to its end."""
        recorded = self.begins()
        acted_on = False
        answer: Any = model.generate_content_async(request, self._stream)
        try:
            async with contextlib.aclosing(answer) as responses:
                async for response in responses:
                    _name_calls(response)
                    recorded.append(_plain(response))
                    acted_on = acted_on or not response.partial
                    if not acted_on:
                        self.hand_on(response)
        except Exception as error:
            self.refuse_if_read(str(request.model), error)
            raise
        return recorded


def _name_calls(response: LlmResponse) -> None:
    """ADK gives ids to calls that have none; here they are journaled with their answer."""
    for part in (response.content.parts if response.content else None) or ():
        if part.function_call is not None and not part.function_call.id:
            part.function_call.id = f"adk-{uuid.uuid4()}"


def _response(recorded: Any) -> LlmResponse:
    # Not from the object itself: only from JSON are bytes read as they were written.
    return LlmResponse.model_validate_json(json.dumps(recorded))


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_none=True)
