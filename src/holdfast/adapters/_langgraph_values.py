"""Values of LangChain and LangGraph in the journal: messages, generations, commands.

Their classes are registered under names of their own, so that records stay readable when a class
moves house. A class of yours that a state holds is found by the state's annotations, or you
register it.

Messages get their ids before they are recorded. A reducer would give ids to those without, anew in
each process, and a node that removes a message by its id would not find it on replay.
"""

from __future__ import annotations

import dataclasses
import inspect
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core import messages as lc
from langchain_core.documents import Document
from langchain_core.messages.base import TextAccessor
from langchain_core.messages.utils import convert_to_messages
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from langgraph.func import entrypoint
from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy

import holdfast

_DEEP_MAX = 20
_CLOSURES_MAX = 4
_CLASSES: tuple[type, ...] = (
    lc.AIMessage, lc.AIMessageChunk, lc.HumanMessage, lc.HumanMessageChunk, lc.SystemMessage,
    lc.SystemMessageChunk, lc.ToolMessage, lc.ToolMessageChunk, lc.FunctionMessage,
    lc.FunctionMessageChunk, lc.ChatMessage, lc.ChatMessageChunk, lc.RemoveMessage,
    ChatResult, Document, ChatPromptValue, StringPromptValue,
    Command, Overwrite, TimeoutPolicy,
)  # fmt: skip

MakeId = Callable[[], str]


def register_classes() -> None:
    for plain in _CLASSES:
        holdfast.register(plain, name=f"langchain.{plain.__name__}")
    holdfast.register(TextAccessor, name="langchain.text", encode=str, decode=TextAccessor)
    for cls in (ChatGeneration, ChatGenerationChunk):
        # Its text is the message's own.
        holdfast.register(
            cls,
            name=f"langchain.{cls.__name__}",
            encode=lambda one: [one.message, one.generation_info],
            decode=lambda parts, cls=cls: cls(message=parts[0], generation_info=parts[1]),
        )
    holdfast.register(
        Send,
        name="langgraph.Send",
        encode=lambda send: [send.node, send.arg, send.timeout],
        decode=lambda parts: Send(parts[0], parts[1], timeout=parts[2]),
    )
    holdfast.register(
        entrypoint.final,
        name="langgraph.final",
        encode=lambda final: [final.value, final.save],
        decode=lambda parts: entrypoint.final(value=parts[0], save=parts[1]),
    )
    holdfast.register(
        Interrupt,
        name="langgraph.Interrupt",
        encode=lambda one: [one.value, one.id, one.response_schema],
        decode=lambda parts: Interrupt(parts[0], parts[1], response_schema=parts[2]),
    )


register_classes()


def shown(messages: list[lc.BaseMessage]) -> list[dict[str, Any]]:
    """Messages as the journal shows them. Without their ids: those may differ on replay."""
    return [_shown(message) for message in messages]


def _shown(message: lc.BaseMessage) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.type, "content": message.content}
    for name in ("tool_calls", "tool_call_id", "name"):
        if value := getattr(message, name, None):
            found[name] = value
    return found


# Classes of one's own


def classes_in(graph: Any) -> Any:
    """An annotation that leads to the classes of a graph's state, and of an agent's structured
    answers."""
    found: list[Any] = list(getattr(getattr(graph, "builder", None), "schemas", ()))
    for node in graph.nodes.values():
        bound = getattr(node.bound, "bound", node.bound)  # in a node that is durable already
        function = getattr(bound, "afunc", None) or getattr(bound, "func", None)
        found += _answers_in(function, set(), 0)
    return tuple.__class_getitem__(tuple(dict.fromkeys(found))) if found else Any


def _answers_in(function: Any, seen: set[int], depth: int) -> list[Any]:
    """The schemas of `create_agent(response_format=...)` are to be found in its nodes only."""
    found: list[Any] = []
    if depth > _CLOSURES_MAX or id(function) in seen:
        return found
    seen.add(id(function))
    for cell in getattr(function, "__closure__", None) or ():
        try:
            value = cell.cell_contents
        except ValueError:
            continue  # not bound yet
        for one in value.values() if type(value) is dict else (value,):
            if inspect.isfunction(one):
                found += _answers_in(one, seen, depth + 1)
            elif isinstance(schema := getattr(one, "schema", None), type):
                if type(one).__module__.startswith("langchain.agents."):
                    found.append(schema)
    return found


# Ids


def random_id() -> str:
    return str(uuid.uuid4())


def with_ids(value: Any, make: MakeId, reduced: frozenset[str] = frozenset()) -> Any:
    """The same value with an id in each message. `reduced` are the keys of a state whose reducer
    takes messages in any form: what stands there becomes messages first."""
    if isinstance(value, Mapping) and type(value) is dict:
        return {
            key: with_ids(_as_messages(item) if key in reduced else item, make)
            for key, item in value.items()
        }
    return _with_ids(value, make, reduced, 0)


def _with_ids(value: Any, make: MakeId, reduced: frozenset[str], depth: int) -> Any:
    if depth > _DEEP_MAX:
        return value
    if isinstance(value, lc.BaseMessage):
        return value if value.id else value.model_copy(update={"id": make()})
    if isinstance(value, Command):
        update = with_ids(value.update, make, reduced)
        goto = _with_ids(value.goto, make, reduced, depth + 1)
        return dataclasses.replace(value, update=update, goto=goto)
    if isinstance(value, Send):
        return Send(value.node, with_ids(value.arg, make, reduced), timeout=value.timeout)
    if isinstance(value, Overwrite):
        return Overwrite(_with_ids(value.value, make, reduced, depth + 1))
    if type(value) in (list, tuple):
        return type(value)(_with_ids(item, make, reduced, depth + 1) for item in value)
    if type(value) is dict:
        return {key: _with_ids(item, make, reduced, depth + 1) for key, item in value.items()}
    return value


def _as_messages(value: Any) -> Any:
    if isinstance(value, Overwrite) or value is None:
        return value
    try:
        return convert_to_messages(value if isinstance(value, list) else [value])
    except Exception:
        return value  # the reducer will say what is wrong with it
