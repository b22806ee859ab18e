"""What people say when they refuse a call, told to the model with the call's result.

The framework makes that result of a fixed text. The comment is beside the decision, also in a
session that is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from agent_framework import Content, Message, _tools

_COMMENT = "holdfast_comment"
_HOOK = "_replace_approval_contents_with_results"


def install() -> None:
    original = getattr(_tools, _HOOK)
    if not hasattr(original, "__wrapped__"):
        setattr(_tools, _HOOK, _telling_why(original))


def with_comment(refusal: Content, comment: str) -> Content:
    refusal.additional_properties = {**refusal.additional_properties, _COMMENT: comment}
    return refusal


def _telling_why(replace: Callable[..., Any]) -> Callable[..., Any]:
    """Around what puts results in place of decisions."""

    @functools.wraps(replace)
    def replaced(messages: list[Message], *args: Any, **named: Any) -> Any:
        comments = {
            one.function_call.call_id: one.additional_properties[_COMMENT]
            for message in messages
            for one in message.contents
            if one.function_call is not None and _COMMENT in one.additional_properties
        }
        found = replace(messages, *args, **named)
        for result in found:
            if result.type == "function_result" and result.call_id in comments:
                result.result = f"{result.result} {comments[result.call_id]}"
                result.items = [Content.from_text(result.result)]
        return found

    return replaced
