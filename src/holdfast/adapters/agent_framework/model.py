"""Calls of chat clients as steps.

Every way to ask a model of the framework ends in a client's `_inner_get_response`. Inside of what
is durable it is a step; all around it (middleware, compaction, the loop that calls tools) stays the
framework's own. A stream is handed on while it comes, but for its last piece: that follows when
the whole is durable, so that nobody acts on an answer that might be lost. What is replayed comes
at once. A stream that breaks when a part of it was handed on is not tried again: its reader cannot
take back what it has read.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_framework import BaseChatClient, ChatResponse, ChatResponseUpdate, Message

import holdfast
from holdfast.adapters._relay import Relay
from holdfast.adapters._shared import (
    as_step,
    ask_in_order,
    is_overflow,
    leave_retries_to_the_step,
)
from holdfast.adapters.agent_framework import values
from holdfast.adapters.agent_framework.active import Active, active, place

_TOLD = ("status_code", "code", "body", "headers", "retry_after")


def install() -> None:
    original = BaseChatClient.get_response
    if not hasattr(original, "__wrapped__"):
        setattr(BaseChatClient, "get_response", _entering(original))  # noqa: B010


def _entering(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_response(self: Any, *args: Any, **named: Any) -> Any:
        now = active()
        if now is None:
            return original(self, *args, **named)
        return original(_asking(self, now), *args, **named)

    return get_response


def _asking(client: Any, now: Active) -> Any:
    """A copy whose calls are steps."""
    copied = copy.copy(client)

    def inner(*, messages: Sequence[Message], stream: bool, options: Any, **named: Any) -> Any:
        asks = Asks(now, [client, *now.options.models])
        question = Question(list(messages), dict(options), named)
        return asks.streamed(question) if stream else asks.answered(question)

    copied.__dict__["_inner_get_response"] = inner
    return copied


@dataclass(frozen=True)
class Question:
    messages: list[Message]
    options: dict[str, Any]
    named: dict[str, Any]

    def shown(self, client: Any) -> dict[str, Any]:
        tools = self.options.get("tools") or ()
        names = [str(getattr(tool, "name", type(tool).__name__)) for tool in tools]
        return {
            "model": self.options.get("model") or getattr(client, "model", None),
            "messages": values.shown(self.messages),
            **({"tools": names} if names else {}),
        }


class Asks:
    """How a model is asked: first itself, then those that stand in for it."""

    def __init__(self, now: Active, clients: Sequence[Any]) -> None:
        self._now, self._clients = now, clients
        self._place = place()

    async def answered(self, question: Question) -> ChatResponse[Any]:
        async def ask(client: Any, question: Question) -> Any:
            answer = await client._inner_get_response(
                messages=question.messages,
                stream=False,
                options=question.options,
                **question.named,
            )
            return values.without_raw(answer)

        answer: ChatResponse[Any] = await self._ask(question, ask)
        answer._response_format = question.options.get("response_format")
        return answer

    def streamed(self, question: Question) -> Any:
        live = Live()

        async def ask(client: Any, question: Question) -> Any:
            return await live.relay(
                client._inner_get_response(
                    messages=question.messages,
                    stream=True,
                    options=question.options,
                    **question.named,
                )
            )

        async def pieces() -> AsyncIterator[ChatResponseUpdate]:
            call = asyncio.ensure_future(self._ask(question, ask, lambda: not live.handed_on))
            async with contextlib.aclosing(
                live.read(call, list, made=copy.deepcopy, cancels=True)
            ) as reading:
                async for piece in reading:
                    yield piece

        return self._clients[0]._build_response_stream(
            pieces(), response_format=question.options.get("response_format")
        )

    async def _ask(
        self,
        question: Question,
        ask: Callable[[Any, Question], Awaitable[Any]],
        may_turn: Callable[[], bool] = lambda: True,
    ) -> Any:
        first = self._clients[0]

        async def ask_one(found: Any, messages: list[Message]) -> Any:
            options, client = question.options, first if isinstance(found, str) else found
            if isinstance(found, str):
                options = {**options, "model": found}
            elif client is not first:  # the name of the first one's model means nothing to it
                options = {k: v for k, v in options.items() if k != "model"}
            asked = replace(question, messages=list(messages), options=options)
            return await self._step(client, asked, ask)

        return await ask_in_order(
            self._clients,
            question.messages,
            ask_one,
            on_overflow=self._now.options.on_overflow,
            may_turn=may_turn,
        )

    def _step(
        self, client: Any, question: Question, ask: Callable[[Any, Question], Awaitable[Any]]
    ) -> Awaitable[Any]:
        async def work() -> Any:
            leave_retries_to_the_step(getattr(client, "client", None))
            try:
                return await ask(client, question)
            except holdfast.HoldfastError:
                raise
            except Exception as error:
                raise _told(error) from error.__cause__

        wanted: Any = question.options.get("response_format")
        returns = typing.Union[Any, wanted] if isinstance(wanted, type) else Any  # noqa: UP007
        return self._place.claim(
            lambda: as_step(
                f"{self._now.name}.model",
                work,
                shown=question.shown(client),
                retry=self._now.options.policy.retry,
                returns=returns,
            )
        )


def _told(error: Exception) -> Exception:
    """The framework's own error, with what its cause says about another try. The cause itself
    holds a response, which cannot be kept."""
    cause = error.__cause__
    if is_overflow(error) or (cause is not None and is_overflow(cause)):
        return holdfast.ContextOverflow(str(error.args[0] if error.args else error))
    if cause is None or error.args[1:] != (cause,):
        return error
    told: Exception = type(error)(error.args[0])
    headers = getattr(getattr(cause, "response", None), "headers", None)
    for name in _TOLD:
        value = headers if name == "headers" else getattr(cause, name, None)
        if value is not None:
            setattr(told, name, dict(value) if name == "headers" else value)
    return told


class Live(Relay[ChatResponseUpdate]):
    """What a streamed call hands on to its reader: copies, for the reader writes into them."""

    async def relay(self, stream: Any) -> list[ChatResponseUpdate]:
        """In the step."""
        if not hasattr(stream, "__aiter__"):
            stream = await stream
        pieces: list[ChatResponseUpdate] = self.begins()
        try:
            async with stream:
                async for piece in stream:
                    if pieces:
                        self.hand_on(copy.deepcopy(pieces[-1]))
                    pieces.append(values.without_raw(piece))
        except Exception as error:
            self.refuse_if_read("the model", error)
            raise
        return pieces
