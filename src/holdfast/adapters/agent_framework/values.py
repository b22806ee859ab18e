"""Values of the framework in the journal: messages, contents, answers, sessions.

Their classes are registered under names of their own. Not kept: what a provider's client hangs on
to them as they came (`raw_representation`); it is taken off at once, so that nobody finds it only
when nothing has crashed.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import functools
import importlib
import sys
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import agent_framework as af
from pydantic import BaseModel

import holdfast

_OMITTED = ("raw_representation", "_response_format", "_value", "_value_parsed")
_NOT_SHOWN = (
    "type", "id", "message_id", "response_id", "agent_id", "created_at", "additional_properties",
    "raw_representation", "usage_details", "annotations", "model", "conversation_id", "hosted",
    "informational_only", "merge_mode", "exception",
)  # fmt: skip
_DEEP_MAX = 20


def _blank() -> tuple[Any, ...]:
    """One of each class, with what a field is when nobody has set it."""
    return (
        af.Content("usage"),
        af.Message("user"),
        af.ChatResponse(),
        af.ChatResponseUpdate(),
        af.AgentResponse(),
        af.AgentResponseUpdate(),
    )


def register_classes() -> None:
    for blank in _blank():
        kind = type(blank)
        holdfast.register(
            kind,
            name=f"agent_framework.{kind.__name__}",
            encode=_fields,
            decode=functools.partial(_made, blank),
        )
    holdfast.register(
        af.AgentSession,
        name="agent_framework.AgentSession",
        encode=lambda one: [one.session_id, one.service_session_id, one.state],
        decode=_session,
    )
    holdfast.register(
        af.WorkflowEvent,
        name="agent_framework.WorkflowEvent",
        encode=_event_fields,
        decode=_event,
    )
    modules = [af]
    with contextlib.suppress(ImportError):
        modules.append(importlib.import_module("agent_framework_orchestrations"))
    found = {one for module in modules for one in _messages_of(module)}
    for kind in sorted(found, key=lambda kind: (kind.__module__, kind.__qualname__)):
        holdfast.register(kind, name=f"agent_framework.{kind.__qualname__}")


def _messages_of(module: Any) -> Iterator[type[Any]]:
    """What the framework's own executors send one another, and ask people."""
    inner = [m for name, m in sys.modules.items() if name.startswith(f"{module.__name__}._")]
    for one in (module, *inner):
        for kind in vars(one).values():
            is_own = isinstance(kind, type) and kind.__module__ == one.__name__
            if is_own and ("_workflows" in one.__name__ or module is not af):
                if dataclasses.is_dataclass(kind) or issubclass(kind, enum.Enum | BaseModel):
                    yield kind


def _fields(value: Any) -> dict[str, Any]:
    found = {k: v for k, v in vars(value).items() if v is not None and k not in _OMITTED}
    if found.get("additional_properties"):
        found["additional_properties"] = _kept(found["additional_properties"])
    if found.get("annotations"):
        found["annotations"] = _kept(list(found["annotations"]))
    if (answer := _structured(value)) is not None:
        found["_value"] = answer
    return found


def _structured(value: Any) -> Any:
    """A structured answer, which is parsed when somebody asks for it."""
    if not hasattr(value, "_value"):
        return None
    try:
        return value.value
    except Exception:  # it is not what was asked for; whoever asks again learns why
        return None


def _made(blank: Any, fields: dict[str, Any]) -> Any:
    made = object.__new__(type(blank))
    made.__dict__.update(copy.deepcopy(vars(blank)))
    made.__dict__.update(fields)
    if "_value" in fields:
        made._value_parsed = True
    return made


def _session(parts: list[Any]) -> af.AgentSession:
    session = af.AgentSession(session_id=parts[0], service_session_id=parts[1])
    session.state = parts[2]
    return session


def _kept(value: Any, depth: int = _DEEP_MAX) -> Any:
    """Without what only the client of one provider understands."""
    if isinstance(value, Mapping):
        return {
            key: _kept(item, depth - 1)
            for key, item in value.items()
            if key != "raw_representation" and depth and _is_kept(item)
        }
    if isinstance(value, list | tuple):
        return [_kept(item, depth - 1) for item in value if depth and _is_kept(item)]
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def _is_kept(value: Any) -> bool:
    plain = (str, int, float, bool, bytes, Mapping, list, tuple, BaseModel, af.Content, af.Message)
    return value is None or isinstance(value, plain)


def without_raw(answer: Any) -> Any:
    """An answer as it would come back from the journal."""
    parts = [answer, *getattr(answer, "messages", ())]
    contents = [content for part in parts for content in getattr(part, "contents", ())]
    for part in (*parts, *contents):
        part.raw_representation = None
    return answer


# For people


def shown(value: Any, depth: int = _DEEP_MAX) -> Any:
    """As the journal shows it, JSON-ready. Without ids and times: those may differ on replay."""
    if value is None or isinstance(value, str | int | float | bool):
        return str(value) if isinstance(value, enum.Enum) else value
    if not depth:
        return "…"
    if isinstance(value, Mapping):
        return {str(key): shown(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        return [shown(item, depth - 1) for item in items]
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if type(value).__module__.startswith("agent_framework") or dataclasses.is_dataclass(value):
        return {
            name: shown(item, depth - 1)
            for name, item in getattr(value, "__dict__", {}).items()
            if not name.startswith("_") and name not in _NOT_SHOWN and item not in (None, [], {})
        }
    return type(value).__name__


# Classes of workflows


_types: dict[str, Any] = {}
"""What executors say that they are given and answered, by name: an event holds such a class."""


def register_types(workflow: af.Workflow) -> None:
    for found in _annotated(workflow):
        _types[repr(found)] = found


def classes_in(workflow: af.Workflow) -> Any:
    """An annotation that leads to the classes of what a workflow's executors send and ask."""
    return typing.Union[(*_annotated(workflow), Any)]


def _annotated(workflow: af.Workflow) -> list[Any]:
    found: list[Any] = []
    for executor in workflow.executors.values():
        if isinstance(executor, af.WorkflowExecutor):
            found += _annotated(executor.workflow)
        found += [*executor.input_types, *executor.output_types, *executor.workflow_output_types]
        for asked, answered in getattr(executor, "_response_handlers", {}):
            found += [asked, answered]
        agent = getattr(executor, "agent", None)
        wanted = (getattr(agent, "default_options", None) or {}).get("response_format")
        found += [wanted] if isinstance(wanted, type) else []
    return [one for one in found if one not in (object, typing.Never)]


def _event_fields(event: af.WorkflowEvent[Any]) -> dict[str, Any]:
    found = {k: v for k, v in vars(event).items() if v is not None and k != "_request_type"}
    found["origin"] = event.origin.value
    if event.state is not None:
        found["state"] = event.state.value
    if event._response_type is not None:
        found["_response_type"] = repr(event._response_type)
    return found


def _event(fields: dict[str, Any]) -> af.WorkflowEvent[Any]:
    event: af.WorkflowEvent[Any] = af.WorkflowEvent(fields["type"])
    event.__dict__.update(fields)
    event.origin = af.WorkflowEventSource(fields["origin"])
    if "state" in fields:
        event.state = af.WorkflowRunState(fields["state"])
    if "_response_type" in fields:
        event._response_type = _types.get(fields["_response_type"], object)
        event._request_type = type(event.data)
    return event


register_classes()
