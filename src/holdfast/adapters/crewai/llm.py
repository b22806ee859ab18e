"""Calls of language models as steps.

Every class of CrewAI's models defines `call` and `acall`; inside a durable crew these are steps, of
whichever class the model is, and whenever that was defined. What a call leaves behind beside its
answer (usage, events of its completion, pieces of a stream) is recorded with it and left behind
again on replay. Pieces of a stream come while they arrive; the crew acts on the answer only when it
is durable. Tool calls come as plain dicts, live and on replay alike.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from crewai.events.types.llm_events import LLMCallType
from crewai.llms import base_llm
from crewai.llms import retry as crewai_retry
from crewai.llms.base_llm import BaseLLM, llm_call_context
from crewai.llms.providers.openai.completion import OpenAICompletion
from crewai.types.usage_metrics import UsageMetrics
from crewai.utilities.agent_utils import extract_tool_call_info
from crewai.utilities.exceptions.context_window_exceeding_exception import (
    LLMContextLengthExceededError,
)
from pydantic import BaseModel

import holdfast
from holdfast.adapters._shared import is_overflow, leave_retries_to_the_step
from holdfast.adapters.crewai.active import Active, Settings, active, call, spend
from holdfast.adapters.crewai.values import plain

STEP = "llm"
_MARK = "__holdfast_asks__"
_OVERFLOWS_MAX = 3
_USAGE = "usage"
_COMPLETED = "_emit_call_completed_event"
_NOT_NOTED = ("self", "from_task", "from_agent", "messages", "response", "call_type")
# Of the arguments of `call`: these go to the model, the rest is CrewAI's own.
_NAMES = ("messages", "tools", "callbacks", "available_functions", "from_task", "from_agent")

_notes: contextvars.ContextVar[list[Any] | None] = contextvars.ContextVar(
    "holdfast.crewai.notes", default=None
)  # of the call that is under way in a step


def install() -> None:
    original = BaseLLM.__dict__["_wrap_call_method"].__func__
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def wrap_call_method(cls: Any, method_name: str) -> None:
        original(cls, method_name)
        _wrap(cls, method_name)

    setattr(wrap_call_method, _MARK, True)
    BaseLLM._wrap_call_method = classmethod(wrap_call_method)  # type: ignore[assignment]
    for kind in _kinds(BaseLLM):
        _wrap(kind, "call")
        _wrap(kind, "acall")
    _note_what_is_left_behind()
    _keep_clients_from_trying_again()


def _kinds(kind: Any) -> Iterator[Any]:
    for inner in kind.__subclasses__():
        yield inner
        yield from _kinds(inner)


def _wrap(kind: Any, method_name: str) -> None:
    original = kind.__dict__.get(method_name)
    if original is None or hasattr(original, _MARK):
        return
    wrapped = _asking(original) if method_name == "call" else _asking_async(original)
    setattr(wrapped, _MARK, original)
    setattr(kind, method_name, wrapped)


def _asking(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def ask(self: BaseLLM, *args: Any, **kwargs: Any) -> Any:
        found = active()
        if found is None or _notes.get() is not None:
            return original(self, *args, **kwargs)
        return Question(self, found, args, kwargs).ask()

    return ask


def _asking_async(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def ask(self: BaseLLM, *args: Any, **kwargs: Any) -> Any:
        found = active()
        if found is None or _notes.get() is not None:
            return await original(self, *args, **kwargs)
        # CrewAI asks for several summaries at once: only by what is asked can they be told apart.
        question = Question(self, found, args, kwargs, by_content=True)
        return await asyncio.to_thread(question.ask)

    return ask


class Question:
    """One call of a model: of the agent's own, and of others when that fails for good."""

    def __init__(
        self,
        llm: BaseLLM,
        found: Active,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        by_content: bool = False,
    ) -> None:
        self._llm, self._found, self._by_content = llm, found, by_content
        given = dict(zip(_NAMES, args, strict=False)) | kwargs
        self._messages = given.pop("messages")
        self._options = given

    @property
    def _settings(self) -> Settings:
        return self._found.settings

    def ask(self) -> Any:
        models = [self._llm, *(m for m in self._settings.models if m is not self._llm)]
        for n, model in enumerate(models):
            try:
                return self._ask(model)
            except holdfast.ContextOverflow:
                raise
            except Exception:
                if n + 1 == len(models):
                    raise

    def _ask(self, model: BaseLLM) -> Any:
        messages = self._messages
        for shortened in range(_OVERFLOWS_MAX + 1):
            try:
                return self._ask_once(model, messages)
            except holdfast.ContextOverflow:
                shorten = self._settings.on_overflow
                if shorten is None or shortened == _OVERFLOWS_MAX or isinstance(messages, str):
                    raise
                messages = shorten(list(messages))

    def _ask_once(self, model: BaseLLM, messages: Any) -> Any:
        executed = False

        def work() -> Any:
            nonlocal executed
            executed = True
            return _executed(model, messages, self._options)

        shown = _shown(model, messages, self._options)
        name = f"{STEP}:{_digest(shown)}" if self._by_content else STEP
        done = call(self._found, name, work, shown=shown, retry=self._settings.policy.retry)
        answer = _decoded(done, self._options.get("response_model"), model)
        for kind, note in done["notes"]:
            if kind == _USAGE:
                spend(UsageMetrics.from_provider_dict(note))
        if not executed:
            self._leave_behind(model, messages, answer, done["notes"])
        return answer

    def _leave_behind(self, model: BaseLLM, messages: Any, answer: Any, notes: list[Any]) -> None:
        """On replay: what the call left behind when it was made."""
        who = {name: self._options.get(name) for name in ("from_task", "from_agent")}
        with llm_call_context():
            started = False
            for kind, note in notes:
                if kind == _USAGE:
                    model._track_token_usage_internal(note)
                    continue
                if not started:
                    model._emit_call_started_event(
                        messages, tools=self._options.get("tools"), **who
                    )
                    started = True
                given = {**note, **who}
                if kind == _COMPLETED:
                    given |= {"response": answer, "messages": messages}
                if note.get("call_type") is not None:
                    given["call_type"] = LLMCallType(note["call_type"])
                getattr(model, kind)(**given)


def _executed(model: BaseLLM, messages: Any, options: dict[str, Any]) -> dict[str, Any]:
    """In the step."""
    notes: list[Any] = []
    noting = _notes.set(notes)
    # CrewAI would try again by itself: here the step does, and the journal knows of it.
    retrying = crewai_retry._active_llm_rate_limit_retry.set(True)
    try:
        answer = model.call(messages, **options)
    except Exception as error:
        if isinstance(error, LLMContextLengthExceededError) or is_overflow(error):
            raise holdfast.ContextOverflow(str(error)) from error
        raise
    finally:
        crewai_retry._active_llm_rate_limit_retry.reset(retrying)
        _notes.reset(noting)
    return {**_encoded(answer), "notes": notes}


# Answers


def _encoded(answer: Any) -> dict[str, Any]:
    if isinstance(answer, list):
        return {"calls": [_plain_call(item) for item in answer]}
    if isinstance(answer, BaseModel):
        return {"model": answer.model_dump(mode="json")}
    return {"answer": answer}


def _plain_call(item: Any) -> Any:
    if isinstance(item, dict):
        return item
    if isinstance(item, BaseModel) and (hasattr(item, "function") or hasattr(item, "input")):
        return item.model_dump(mode="json", exclude_none=True)
    info = extract_tool_call_info(item)
    if info is None:
        return plain(item)
    call_id, name, arguments = info
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _decoded(done: Mapping[str, Any], response_model: Any, model: BaseLLM) -> Any:
    if "calls" in done:
        return list(done["calls"])
    if "model" not in done:
        return done["answer"]
    kind = response_model or getattr(model, "response_format", None)
    if not (inspect.isclass(kind) and issubclass(kind, BaseModel)):
        return done["model"]
    return kind.model_validate(done["model"])


def _shown(model: BaseLLM, messages: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """System messages are no part of it: they may be worded anew while runs are under way."""
    asked: Any = messages
    if not isinstance(messages, str):
        asked = [plain(one) for one in messages if one.get("role") != "system"]
    tools = [_tool_name(tool) for tool in options.get("tools") or ()]
    return {"model": model.model, "messages": asked, **({"tools": tools} if tools else {})}


def _digest(shown: Any) -> str:
    return hashlib.blake2b(json.dumps(shown, sort_keys=True).encode(), digest_size=4).hexdigest()


def _tool_name(tool: Any) -> str:
    return str(tool.get("function", tool).get("name")) if isinstance(tool, dict) else str(tool)


# What a call leaves behind


def _note_what_is_left_behind() -> None:
    original = BaseLLM._track_token_usage_internal

    @functools.wraps(original)
    def track(self: BaseLLM, usage_data: dict[str, Any]) -> None:
        notes = _notes.get()
        if notes is not None:
            notes.append([_USAGE, plain(usage_data)])
        original(self, usage_data)

    BaseLLM._track_token_usage_internal = track  # type: ignore[method-assign]
    for name in ("_emit_stream_chunk_event", _COMPLETED):
        setattr(BaseLLM, name, _noting(name, getattr(BaseLLM, name)))


def _noting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def emit(self: BaseLLM, *args: Any, **kwargs: Any) -> None:
        notes = _notes.get()
        if notes is not None:
            given = dict(signature.bind(self, *args, **kwargs).arguments)
            kept = {
                key: plain(value)
                for key, value in given.items()
                if value is not None and key not in _NOT_NOTED
            }
            kind = given.get("call_type")
            notes.append([name, {**kept, "call_type": kind.value if kind else None}])
        original(self, *args, **kwargs)

    return emit


def _keep_clients_from_trying_again() -> None:
    original = OpenAICompletion._get_sync_client

    @functools.wraps(original)
    def get_sync_client(self: OpenAICompletion) -> Any:
        client = original(self)
        if _notes.get() is not None:
            leave_retries_to_the_step(client)
        return client

    OpenAICompletion._get_sync_client = get_sync_client  # type: ignore[method-assign]


HOOKS = {
    "BaseLLM._wrap_call_method": getattr(BaseLLM, "_wrap_call_method", None),
    "BaseLLM._track_token_usage_internal": getattr(BaseLLM, "_track_token_usage_internal", None),
    "BaseLLM._emit_stream_chunk_event": getattr(BaseLLM, "_emit_stream_chunk_event", None),
    "BaseLLM._emit_call_completed_event": getattr(BaseLLM, "_emit_call_completed_event", None),
    "OpenAICompletion._get_sync_client": getattr(OpenAICompletion, "_get_sync_client", None),
    "retry._active_llm_rate_limit_retry": getattr(
        crewai_retry, "_active_llm_rate_limit_retry", None
    ),
    "llm_call_context": getattr(base_llm, "llm_call_context", None),
}
