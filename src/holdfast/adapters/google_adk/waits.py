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
from holdfast.adapters._questions import about_call
from holdfast.adapters._shared import under_free_name
from holdfast.adapters.google_adk.options import active

COMMENT = "comment"  # of a decision, in the confirmation's payload
_CONFIRMATION = "adk_request_confirmation"
_USUAL_HINT = "Please approve or reject the tool call"


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
    given = call.args or {}
    if call.name != _CONFIRMATION:
        prompt = about_call(call.name, _shown(given))
        return under_free_name(
            f"{call.name}:{call.id}", lambda name: holdfast.promise(name, prompt=prompt)
        )
    asked = given.get("originalFunctionCall") or {}
    confirmation = given.get("toolConfirmation") or {}
    hint = str(confirmation.get("hint") or "")
    prompt = about_call(
        asked.get("name"),
        asked.get("args"),
        hint=None if hint.startswith(_USUAL_HINT) else hint or None,
        payload=confirmation.get("payload"),
    )
    name = f"{asked.get('name')}:{asked.get('id')}"
    return under_free_name(name, lambda name: holdfast.approval(name, prompt))


def _shown(given: dict[str, Any]) -> dict[str, Any]:
    """A request for credentials holds those that the program has: people need but the address."""
    if "authConfig" not in given:
        return {name: value for name, value in given.items() if value is not None}
    exchanged = given["authConfig"].get("exchangedAuthCredential") or {}
    uri = (exchanged.get("oauth2") or {}).get("authUri")
    shown = {name: value for name, value in given.items() if name != "authConfig"}
    return {**shown, "authUri": uri} if uri else shown


def telling_why(gate: Callable[..., Any]) -> Callable[..., Any]:
    """Around what tells the model that a call is refused: with what was said about it."""

    async def told(tool: Any, function_args: Any, tool_context: Any) -> Any:
        result = await gate(tool, function_args, tool_context)
        confirmation = tool_context.tool_confirmation
        payload = getattr(confirmation, "payload", None)
        if result is None or active() is None or not isinstance(payload, dict):
            return result
        return result if COMMENT not in payload else {**result, COMMENT: payload[COMMENT]}

    return told


def _response(answer: Any) -> dict[str, Any]:
    if isinstance(answer, holdfast.Decision):
        said = {"payload": {COMMENT: answer.comment}} if answer.comment else {}
        return {"confirmed": answer.approved, **said}
    return answer if isinstance(answer, dict) else {"result": answer}
