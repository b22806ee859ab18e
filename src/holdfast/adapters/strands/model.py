"""A model's calls as steps.

A call is keyed by a counter in its scope; what the model is given is the step's input, without the
system prompt, which may hold the date and may be improved while runs are under way. Strands asks
models by streaming only, and acts when the stream has ended: that is when the answer is durable.
A stream that breaks when a part of it was handed on is not tried again: its reader cannot take
back what it has read.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import functools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

from strands.models import Model
from strands.types.exceptions import ContextWindowOverflowException, ModelThrottledException

import holdfast
from holdfast.adapters._relay import Relay
from holdfast.adapters._shared import (
    Place,
    as_step,
    ask_in_order,
    is_overflow,
    leave_retries_to_the_step,
)
from holdfast.adapters.strands import hooks
from holdfast.adapters.strands.options import Messages, Options

M = TypeVar("M", bound=Model)

_ASKS = "_holdfast_asks"
_ONCE = holdfast.Retry(attempts=1)
_ADVICE = ("retry-after", "retry-after-ms", "x-should-retry")

in_step: contextvars.ContextVar[bool] = contextvars.ContextVar("holdfast_strands_in_step")
"""Set in steps whose calls of models, in threads of Strands' own, belong to the step."""


class ContextOverflow(holdfast.ContextOverflow, ContextWindowOverflowException):
    """The model was given more than it can read; shorten what it is sent, or say how to by
    durable(..., on_overflow=...)."""


class Asks:
    """How one agent asks one model: first itself, then those that stand in for it."""

    def __init__(
        self,
        model: Model,
        options: Options,
        place: Callable[[], Place],
        failure: Callable[[], BaseException | None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.model, self.place, self.fail = model, place, fail
        self.first_ms = 0  # of the last answer: how long it took to begin
        self._options, self._failure = options, failure

    async def stream(
        self, messages: Messages, *args: Any, **named: Any
    ) -> AsyncGenerator[Any, None]:
        live: Relay[Any] = Relay()
        state: dict[str, Any] | None = named.get("model_state")

        async def ask(model: Model, given: Messages) -> Any:
            async def work() -> Any:
                begun = time.monotonic()
                events = _once(model).stream(given, *args, **named)
                recorded, first = await _relayed(live, events, model)
                ms = round(1000 * (first - begun))
                return {"events": recorded, "state": state or None, "first_ms": ms}

            return await self._step(model, given, work)

        call = asyncio.ensure_future(self._ask(messages, ask, live))
        events = live.read(call, lambda answer: answer["events"], cancels=True)
        async with contextlib.aclosing(events):
            async for event in events:
                yield event
        answer = call.result()
        self.first_ms = answer["first_ms"]
        if state is not None and answer["state"] is not state:
            state.clear()
            state.update(answer["state"] or {})

    async def structured_output(
        self, output_model: Any, prompt: Messages, *args: Any, **named: Any
    ) -> AsyncGenerator[Any, None]:
        async def ask(model: Model, given: Messages) -> Any:
            async def work() -> Any:
                found = None
                async for event in _once(model).structured_output(
                    output_model, given, *args, **named
                ):
                    found = event.get("output", found)
                return found

            return await self._step(model, given, work, returns=output_model)

        yield {"output": await self._ask(prompt, ask, Relay())}

    async def count_tokens(self, *args: Any, **named: Any) -> Any:
        """An estimate; whoever asks can do without it."""
        work = functools.partial(self.model.count_tokens, *args, **named)
        return await self.place().claim(lambda: as_step("count_tokens", work, retry=_ONCE))

    async def _ask(
        self, messages: Messages, ask: Callable[[Model, Messages], Awaitable[Any]], live: Relay[Any]
    ) -> Any:
        if (failure := self._failure()) is not None:
            raise failure
        return await ask_in_order(
            [self.model, *self._options.models],
            messages,
            ask,
            on_overflow=self._options.on_overflow,
            may_turn=lambda: not live.handed_on,
        )

    async def _step(
        self,
        model: Model,
        given: Messages,
        work: Callable[[], Awaitable[Any]],
        returns: Any = Any,
    ) -> Any:
        async def call() -> Any:
            try:
                return await work()
            except Exception as error:
                if isinstance(error, ContextWindowOverflowException) or is_overflow(error):
                    raise ContextOverflow(f"{name_of(model)}: {error}") from error
                if isinstance(error, ModelThrottledException):
                    _advise(error)
                raise

        shown = {"model": name_of(model), "messages": given}
        retry = self._options.policy.retry
        return await self.place().claim(
            lambda: as_step("model", call, shown=shown, retry=retry, returns=returns)
        )


async def _relayed(live: Relay[Any], events: Any, model: Model) -> tuple[list[Any], float]:
    """In the step: reads the stream to its end, and sees when it began."""
    recorded = live.begins()
    first: float | None = None
    try:
        async for event in events:
            recorded.append(event)
            # An answer that has only begun can still be begun again.
            if live.handed_on or "messageStart" not in event:
                first = first or time.monotonic()
                live.hand_on(*recorded[live.handed_on :])
    except Exception as error:
        live.refuse_if_read(name_of(model), error)
        raise
    return recorded, first or time.monotonic()


def as_recorded(model: Model, metrics: Any) -> None:
    """Strands measures how long an answer takes to begin; on replay it is as long as it was."""
    metrics["timeToFirstByteMs"] = vars(model)[_ASKS].first_ms


def _advise(error: ModelThrottledException) -> None:
    """What the server said of when to come back is in what Strands made the error of."""
    cause: Any = error.__cause__
    headers = getattr(getattr(cause, "response", None), "headers", None)
    if headers is not None:
        advice: Any = {name: headers[name] for name in _ADVICE if name in headers}
        error.__dict__.update(status_code=getattr(cause, "status_code", 429), headers=advice)


def _once(model: M) -> M:
    """Where the client is known, it does not try again by itself: the step does. Each try of a step
    sends the same key."""
    found = vars(model)
    known = [leave_retries_to_the_step(found.get(name)) for name in ("_custom_client", "client")]
    given = found.get("client_args")
    if any(known) or not isinstance(given, dict) or not _makes_openai(model):
        return model
    headers = {"Idempotency-Key": holdfast.idempotency_key()}
    headers |= given.get("default_headers") or {}
    copied = copy.copy(model)
    copied.__dict__["client_args"] = {**given, "max_retries": 0, "default_headers": headers}
    return copied


def _makes_openai(model: Model) -> bool:
    """It makes a client of OpenAI's for each call."""
    return callable(getattr(model, "_resolve_client_args", None))


def name_of(model: Model) -> str:
    config = getattr(model, "config", None)
    name = config.get("model_id") if isinstance(config, dict) else None
    return name if isinstance(name, str) else type(model).__name__


# Models in place of models


class _Durable:
    """What the classes of durable models have before those of Strands."""

    def stream(self, *args: Any, **named: Any) -> Any:
        return self._holdfast_asked().stream(*args, **named)

    def structured_output(self, *args: Any, **named: Any) -> Any:
        return self._holdfast_asked().structured_output(*args, **named)

    async def count_tokens(self, *args: Any, **named: Any) -> Any:
        asks: Asks = vars(self)[_ASKS]
        if type(asks.model).count_tokens is Model.count_tokens:  # it only counts letters
            return await asks.model.count_tokens(*args, **named)
        return await self._holdfast_asked().count_tokens(*args, **named)

    def _holdfast_asked(self) -> Any:
        asks: Asks = vars(self)[_ASKS]
        if holdfast.current_run() is None or in_step.get(False):
            return asks.model
        if hooks.is_run_async_bridge():
            refused = holdfast.Unsupported(
                f"{name_of(asks.model)} was asked in an event loop of Strands' own, where a run "
                "cannot journal it: use the async way to what asks it"
            )
            asks.fail(refused)  # whoever asks may go on without an answer
            raise refused
        return asks


@functools.cache
def _durable_class(kind: type[Any]) -> type[Any]:
    return type(kind.__name__, (_Durable, kind), {"__module__": kind.__module__})


def durable_model(model: M, asks: Callable[[Model], Asks]) -> M:
    """One of the same class, whose calls in a run are steps."""
    inner = vars(model)[_ASKS].model if isinstance(model, _Durable) else model
    made: M = object.__new__(_durable_class(type(inner)))
    made.__dict__.update(inner.__dict__)
    made.__dict__[_ASKS] = asks(inner)
    return made


def require_model(model: object) -> None:
    if not isinstance(model, Model) or not hasattr(model, "__dict__"):
        raise holdfast.BadArguments(
            f"the calls of {model!r} cannot be journaled: a model is an object of a class that is "
            "made from strands.models.Model"
        )
