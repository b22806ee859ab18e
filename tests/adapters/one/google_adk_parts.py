"""What tests of agents of Google ADK share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events import Event
from google.adk.models import Gemini
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from google.genai import types
from mcp import StdioServerParameters

import holdfast
from holdfast.testing.model_server import ModelServer, Reply
from tests.adapters.noted import COMMAND, SERVER, environment

SOON = holdfast.Retry(attempts=3, backoff=timedelta(milliseconds=1))
ONCE = holdfast.Retry(attempts=1)

Connect = Callable[..., Gemini]


@asynccontextmanager
async def clients() -> AsyncIterator[Connect]:
    """Makes models whose clients are closed at the end."""
    made: list[Gemini] = []

    def connect(model: ModelServer, **options: Any) -> Gemini:
        known = {"api_key": "any"}
        made.append(Gemini(model="gemini-m", base_url=model.url, client_kwargs=known, **options))
        return made[-1]

    yield connect
    for model in made:
        await model.api_client.aio.aclose()
        model.api_client.close()


def notes(folder: str | Path, args: list[str] = SERVER) -> McpToolset:
    params = StdioServerParameters(command=COMMAND, args=args, env=environment(folder))
    return McpToolset(connection_params=StdioConnectionParams(server_params=params, timeout=60))


def calls(*tools: Any) -> list[Any]:
    return [Reply(tool_calls=tools), "Done."]


def runner_of(agent: Any, **services: Any) -> Runner:
    services = {"session_service": InMemorySessionService(), **services}
    return Runner(app_name="app", agent=agent, auto_create_session=True, **services)


def asking(text: str = "hello", **options: Any) -> dict[str, Any]:
    message = types.UserContent(text)
    return {"user_id": "ada", "session_id": "s", "new_message": message, **options}


SSE = RunConfig(streaming_mode=StreamingMode.SSE)


def texts(events: list[Event]) -> list[str]:
    parts = [part for event in events if event.content for part in event.content.parts or []]
    return [part.text for part in parts if part.text]
