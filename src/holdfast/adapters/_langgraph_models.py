"""Calls of chat models as steps.

Every way to ask a model of LangChain ends in four methods: `_agenerate`, `_astream` and their sync
twins. Inside a durable graph these are steps; all around them (callbacks, tokens, caches) stays
LangChain's own. A stream is handed on while it comes, but for its last piece: that follows when the
whole is durable. A stream that breaks when a part of it was handed on is not tried again. Sync
streams come when they are complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult

import holdfast
from holdfast.adapters import _langgraph_values as values
from holdfast.adapters._langgraph_active import Settings, active, call, call_in_thread
from holdfast.adapters._relay import Relay, StreamBroken
from holdfast.adapters._shared import Place, is_overflow, leave_retries_to_the_step

try:
    from langchain_core.exceptions import ContextOverflowError as _TheirOverflow
except ImportError:  # before 1.2
    _TheirOverflow = Exception  # type: ignore[assignment, misc]

ENTRIES = (
    "_agenerate_with_cache",
    "_generate_with_cache",
    "astream",
    "stream",
    "_achat_model_stream_v3",
    "_chat_model_stream_v3",
)
STEP = "llm"
_OVERFLOWS_MAX = 3
_MARK = "_holdfast_asks"


class ContextOverflow(holdfast.ContextOverflow, _TheirOverflow):
    """The model was given more than it can read; shorten what it is sent, or say how to by
    durable(..., on_overflow=...)."""


def install() -> None:
    for name in ENTRIES:
        original = getattr(BaseChatModel, name)
        if not hasattr(original, "__wrapped__"):
            setattr(BaseChatModel, name, _entering(original))


def _entering(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def entered(self: BaseChatModel, *args: Any, **kwargs: Any) -> Any:
        found = active()
        if found is None or _MARK in self.__dict__:
            return original(self, *args, **kwargs)
        return original(_asking(self, found.settings), *args, **kwargs)

    return entered


def _asking(model: BaseChatModel, settings: Settings) -> BaseChatModel:
    """A copy whose calls are steps."""
    asks = Asks(model, settings)
    copied = copy.copy(model)
    copied.__dict__.update(
        {
            _MARK: asks,
            "_agenerate": asks.agenerate,
            "_generate": asks.generate,
            "_astream": asks.astream,
            "_stream": asks.stream,
        }
    )
    return copied


class Asks:
    """How one model is asked: first itself, then those that stand in for it."""

    def __init__(self, model: BaseChatModel, settings: Settings) -> None:
        self._models = [model, *settings.models]
        self._settings = settings
        self._retry = settings.policy.retry
        self._place = Place()  # who asks, before LangChain makes tasks of it

    # The four

    async def agenerate(
        self, messages: list[Any], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        async def ask(model: BaseChatModel, given: list[Any], options: dict[str, Any]) -> Any:
            manager = {"run_manager": run_manager} if _takes_manager(model._agenerate) else {}
            return await model._agenerate(given, stop=stop, **manager, **options)

        result: ChatResult = await self._ask(messages, kwargs, ask)
        return result

    async def astream(
        self, messages: list[Any], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        live = Live()

        async def ask(model: BaseChatModel, given: list[Any], options: dict[str, Any]) -> Any:
            return await live.relay(_pieces(model, given, stop, options))

        calling = asyncio.ensure_future(self._ask(messages, kwargs, ask, live))
        pieces = live.read(calling, list, made=copy.deepcopy)
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                yield piece

    def generate(
        self, messages: list[Any], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        def ask(model: BaseChatModel, given: list[Any], options: dict[str, Any]) -> Any:
            manager = {"run_manager": run_manager} if _takes_manager(model._generate) else {}
            return model._generate(given, stop=stop, **manager, **options)

        result: ChatResult = self._ask_in_thread(messages, kwargs, ask)
        return result

    def stream(
        self, messages: list[Any], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        def ask(model: BaseChatModel, given: list[Any], options: dict[str, Any]) -> Any:
            if not _can_stream(model):
                return _in_one_piece(model._generate(given, stop=stop, **options))
            return list(model._stream(given, stop=stop, **options))

        yield from self._ask_in_thread(messages, kwargs, ask)

    # One after the other

    async def _ask(
        self, messages: list[Any], kwargs: dict[str, Any], ask: Any, live: Live | None = None
    ) -> Any:
        for n, model in enumerate(self._models):
            try:
                return await self._ask_one(model, messages, kwargs, ask)
            except (StreamBroken, holdfast.ContextOverflow):
                raise
            except Exception:
                if n + 1 == len(self._models):
                    raise

    async def _ask_one(
        self, model: BaseChatModel, messages: list[Any], kwargs: dict[str, Any], ask: Any
    ) -> Any:
        leave_retries_of(model)
        options = self._options(model, kwargs)
        for shortened in range(_OVERFLOWS_MAX + 1):
            given = messages

            async def work(given: list[Any] = given) -> Any:
                with _overflows():
                    return await ask(model, given, options)

            try:
                question = _shown(model, given, options)
                return await call(STEP, work, shown=question, retry=self._retry, place=self._place)
            except holdfast.ContextOverflow:
                if self._settings.on_overflow is None or shortened == _OVERFLOWS_MAX:
                    raise
                messages = self._settings.on_overflow(given)
                if inspect.isawaitable(messages):
                    messages = await messages

    def _ask_in_thread(self, messages: list[Any], kwargs: dict[str, Any], ask: Any) -> Any:
        for n, model in enumerate(self._models):
            try:
                return self._ask_one_in_thread(model, messages, kwargs, ask)
            except holdfast.ContextOverflow:
                raise
            except Exception:
                if n + 1 == len(self._models):
                    raise

    def _ask_one_in_thread(
        self, model: BaseChatModel, messages: list[Any], kwargs: dict[str, Any], ask: Any
    ) -> Any:
        leave_retries_of(model)
        options = self._options(model, kwargs)
        for shortened in range(_OVERFLOWS_MAX + 1):
            given = messages

            def work(given: list[Any] = given) -> Any:
                with _overflows():
                    return ask(model, given, options)

            try:
                question = _shown(model, given, options)
                return call_in_thread(STEP, work, shown=question, retry=self._retry)
            except holdfast.ContextOverflow:
                if self._settings.on_overflow is None or shortened == _OVERFLOWS_MAX:
                    raise
                messages = self._settings.on_overflow(given)

    def _options(self, model: BaseChatModel, kwargs: dict[str, Any]) -> dict[str, Any]:
        """What was bound to the first model, as another one takes it."""
        if type(model) is type(self._models[0]) or "tools" not in kwargs:
            return kwargs
        bound: Any = model.bind_tools(kwargs["tools"])
        return {**{k: v for k, v in kwargs.items() if k not in ("tools", "tool_choice")},
                **bound.kwargs}  # fmt: skip


class Live(Relay[ChatGenerationChunk]):
    """What one streamed call hands on to its reader: copies, for the reader writes ids and metadata
    into them. If the reader leaves, what came until then is the answer."""

    async def relay(self, stream: AsyncIterator[ChatGenerationChunk]) -> list[ChatGenerationChunk]:
        """In the step."""
        pieces: list[ChatGenerationChunk] = self.begins()
        try:
            async for piece in stream:
                if pieces:
                    self.hand_on(copy.deepcopy(pieces[-1]))
                pieces.append(piece)
                if self.left:
                    break
        except Exception as error:
            self.refuse_if_read("the model", error)
            raise
        return pieces


async def _pieces(
    model: BaseChatModel, messages: list[Any], stop: Any, options: dict[str, Any]
) -> AsyncIterator[ChatGenerationChunk]:
    if _can_stream(model):
        async for piece in model._astream(messages, stop=stop, **options):
            yield piece
    else:
        for piece in _in_one_piece(await model._agenerate(messages, stop=stop, **options)):
            yield piece


def _can_stream(model: BaseChatModel) -> bool:
    """A model that stands in for one that streams may not."""
    return any(
        getattr(type(model), name) is not getattr(BaseChatModel, name)
        for name in ("_stream", "_astream")
    )


def _in_one_piece(result: ChatResult) -> list[ChatGenerationChunk]:
    answer: Any = result.generations[0]
    said = answer.message.model_dump(exclude={"type"})
    message = AIMessageChunk(**said, chunk_position="last")
    return [ChatGenerationChunk(message=message, generation_info=answer.generation_info)]


@contextlib.contextmanager
def _overflows() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        theirs = _TheirOverflow is not Exception and isinstance(error, _TheirOverflow)
        if theirs or is_overflow(error):
            raise ContextOverflow(str(error)) from error
        raise


def _shown(model: BaseChatModel, messages: list[Any], options: dict[str, Any]) -> dict[str, Any]:
    name = getattr(model, "model_name", None) or getattr(model, "model", None)
    tools = [_tool_name(tool) for tool in options.get("tools") or ()]
    return {
        "model": name if isinstance(name, str) else type(model).__name__,
        "messages": values.shown(messages),
        **({"tools": tools} if tools else {}),
    }


def _tool_name(tool: Any) -> str:
    if not isinstance(tool, dict):
        return str(getattr(tool, "name", type(tool).__name__))
    return str(tool.get("function", tool).get("name") or tool.get("type"))


@functools.lru_cache(256)
def _takes_manager_of(function: Any) -> bool:
    return "run_manager" in inspect.signature(function).parameters


def _takes_manager(method: Any) -> bool:
    return _takes_manager_of(method.__func__)


def leave_retries_of(model: BaseChatModel) -> None:
    """To the step, which the journal knows of."""
    for name in ("root_client", "root_async_client"):
        leave_retries_to_the_step(model.__dict__.get(name))
