"""People: calls that ADK leaves to its caller wait for an answer.

Where ADK would end and let its caller send the answers, a run waits for one approval or promise
each, and goes on when all are there. Confirmations of tools are approvals
`<tool>:<id of the call>`. Other calls that take long (`LongRunningFunctionTool`, requests for input
or for credentials) are promises of that name. A long-running tool that has returned something is
done, unless that says `"status": "pending"`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.adk.events import Event
from google.genai import types

import holdfast

NAMES_MAX = 1000
"""How often one run may ask under the same id of a call."""

_CONFIRMATION = "adk_request_confirmation"


class Pending:
    """The calls of one invocation that nobody has answered."""

    def __init__(self) -> None:
        self._calls: dict[str, types.FunctionCall] = {}
        self._invocation = ""

    def note(self, event: Event) -> None:
        if event.partial:
            return
        for call in event.get_function_calls():
            if call.id and call.id in (event.long_running_tool_ids or ()):
                self._calls[call.id] = call
                self._invocation = event.invocation_id
        for response in event.get_function_responses():
            told = response.response or {}
            if response.id in self._calls and told.get("status") != "pending":
                del self._calls[response.id]

    async def answers(self) -> tuple[Event | None, types.Content | None]:
        """What to add to the session, and the message to go on with; none if nobody was asked.

        ADK overlooks what stands in one message with a confirmation."""
        # All are asked for before the first is awaited, so that they can be answered in any order.
        asked = [(call, _ask(call)) for call in self._calls.values()]
        confirmed: list[types.Part] = []
        others: list[types.Part] = []
        for call, promise in asked:
            answer = _response(await promise)
            response = types.FunctionResponse(id=call.id, name=call.name, response=answer)
            part = types.Part(function_response=response)
            (confirmed if call.name == _CONFIRMATION else others).append(part)
        if not asked:
            return None, None
        if not confirmed or not others:
            return None, types.Content(role="user", parts=confirmed + others)
        event = Event(
            id=Event.new_id(),
            invocation_id=self._invocation,
            author="user",
            content=types.Content(role="user", parts=others),
        )
        return event, types.Content(role="user", parts=confirmed)


def _ask(call: types.FunctionCall) -> Any:
    if call.name != _CONFIRMATION:
        return _opened(holdfast.promise, f"{call.name}:{call.id}")
    given = call.args or {}
    asked = given.get("originalFunctionCall") or {}
    confirmation = given.get("toolConfirmation") or {}
    prompt = {
        "tool": asked.get("name"),
        "arguments": asked.get("args"),
        "hint": confirmation.get("hint"),
        "payload": confirmation.get("payload"),
    }
    name = f"{asked.get('name')}:{asked.get('id')}"
    return _opened(lambda name: holdfast.approval(name, prompt), name)


def _opened(open: Callable[[str], Any], name: str) -> Any:
    tried = name
    for n in range(2, NAMES_MAX):
        try:
            return open(tried)
        except holdfast.PromiseReused:  # some models count their calls anew in each conversation
            tried = f"{name}:{n}"
    raise holdfast.PromiseReused(f"{NAMES_MAX} calls of one run are called {name!r}")


def _response(answer: Any) -> dict[str, Any]:
    if isinstance(answer, holdfast.Decision):
        return {"confirmed": answer.approved}
    return answer if isinstance(answer, dict) else {"result": answer}
