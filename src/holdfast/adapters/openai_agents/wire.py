"""What the SDK gets of a model, as JSON in and out.

Only what was set is written: what the SDK sends to the model next must be the same with a replayed
answer. Reading is as lenient as OpenAI's client itself, which takes what servers send without
validating it.
"""

from __future__ import annotations

from typing import Any

from agents import ModelResponse
from pydantic import BaseModel

from holdfast.adapters.openai_agents import hooks


def plain(value: Any) -> Any:
    """JSON of models, dicts and lists of them."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True, warnings=False)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def response(given: ModelResponse) -> Any:
    return {
        "output": plain(given.output),
        "usage": hooks.serialize_usage(given.usage),
        "response_id": given.response_id,
        "request_id": given.request_id,
        "raw_usage": given.raw_usage,
    }


def response_from(recorded: Any) -> ModelResponse:
    return ModelResponse(
        output=[_item(item) for item in recorded["output"]],
        usage=hooks.deserialize_usage(recorded["usage"]),
        response_id=recorded["response_id"],
        request_id=recorded["request_id"],
        raw_usage=recorded["raw_usage"],
    )


def _item(recorded: Any) -> Any:
    return hooks.construct_type(type_=hooks.OutputItem, value=recorded)


def event(given: Any) -> Any:
    """An event, and what the SDK keeps beside the response in the last one."""
    answer = getattr(given, "response", None)
    if answer is None:
        return {"event": plain(given)}
    usage = getattr(answer, "usage", None)
    kept = {
        "request_id": getattr(answer, "_request_id", None),
        "requests": hooks.requests_without_usage(answer),
        "usage": hooks.serialize_usage(hooks.response_usage(usage)) if usage else None,
        "raw_usage": hooks.raw_usage(answer),
    }
    return {"event": plain(given), **{key: value for key, value in kept.items() if value}}


def event_from(recorded: Any) -> Any:
    made: Any = hooks.construct_type(type_=hooks.StreamEvent, value=recorded["event"])
    answer = getattr(made, "response", None)
    if answer is None:
        return made
    if "request_id" in recorded:
        answer._request_id = recorded["request_id"]
    if "requests" in recorded:
        hooks.mark_requests(answer, recorded["requests"])
    if "usage" in recorded and answer.usage is not None:
        hooks.attach_normalized_usage(answer.usage, hooks.deserialize_usage(recorded["usage"]))
    if "raw_usage" in recorded:
        hooks.attach_raw_usage(answer, recorded["raw_usage"])
    return made
