"""An agent as a run of its own: `app.start(agent, "hello")`."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from pydantic import BaseModel

import holdfast


def workflow_of(agent: Any, name: str) -> holdfast.Workflow[Any, Any]:
    """Its result is the last answer: text, what `output_schema` says, or a workflow's output."""
    root = agent.agent if isinstance(agent, Runner) else agent
    schema = root.output_schema if isinstance(root, LlmAgent) else None

    async def run(
        message: str | types.Content,
        user_id: str = "user",
        session_id: str | None = None,
        state: dict[str, Any] | None = None,
    ) -> Any:
        runner = agent if isinstance(agent, Runner) else _runner(agent, name)
        events = runner.run_async(
            user_id=user_id,
            session_id=session_id or holdfast.current_run() or name,
            new_message=types.UserContent(message) if isinstance(message, str) else message,
            state_delta=state,
        )
        last = None
        async for event in events:
            if _answers(event):
                last = event
        return _result(last, schema)

    if isinstance(schema, type):
        run.__annotations__["return"] = schema
    return holdfast.Workflow(run, name=name)


def _runner(agent: Any, name: str) -> Runner:
    given = {"node": agent} if not hasattr(agent, "sub_agents") else {"agent": agent}
    return Runner(
        app_name=name,
        session_service=InMemorySessionService(),
        auto_create_session=True,
        **given,
    )


def _answers(event: Event) -> bool:
    if event.partial:
        return False
    return event.output is not None or bool(event.error_code) or event.is_final_response()


def _result(last: Event | None, schema: Any) -> Any:
    if last is None:
        return None
    if last.output is not None:
        return last.output
    if last.error_code and not last.content:
        raise holdfast.Terminal(f"{last.error_code}: {last.error_message}")
    parts = (last.content.parts if last.content else None) or []
    text = "".join(part.text or "" for part in parts if not part.thought)
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return schema.model_validate_json(text)
    return text
