"""Credentials that agents and nodes of Google ADK ask people for, in runs."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs

import pytest
from fastapi.openapi.models import (
    APIKey,
    APIKeyIn,
    HTTPBearer,
    OAuth2,
    OAuthFlowAuthorizationCode,
    OAuthFlows,
)
from google.adk.agents import Context, LlmAgent
from google.adk.auth.auth_credential import (
    AuthCredential,
    AuthCredentialTypes,
    HttpAuth,
    HttpCredentials,
    OAuth2Auth,
)
from google.adk.auth.auth_handler import AuthHandler
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events import EventActions, RequestInput
from google.adk.tools import ToolContext
from google.adk.workflow import Workflow
from google.adk.workflow._function_node import FunctionNode

import holdfast
from holdfast.adapters.google_adk import durable
from holdfast.adapters.google_adk.tools import _change_again, _steered
from holdfast.testing.model_server import ModelServer
from tests.adapters.one.google_adk_parts import calls, clients
from tests.adapters.outcomes import asked

SECRET = "hush-hush"


def oauth2(token_url: str = "https://localhost/token") -> AuthConfig:
    code = OAuthFlowAuthorizationCode(
        authorizationUrl="https://localhost/login", tokenUrl=token_url, scopes={"read": "reads"}
    )
    known = OAuth2Auth(client_id="me", client_secret=SECRET, redirect_uri="https://localhost/")
    return AuthConfig(
        credential_key="looks",
        auth_scheme=OAuth2(flows=OAuthFlows(authorizationCode=code)),
        raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=known),
    )


def with_tokens() -> AuthConfig:
    config = oauth2()
    assert config.raw_auth_credential is not None and config.raw_auth_credential.oauth2 is not None
    config.raw_auth_credential.oauth2.access_token = SECRET
    config.raw_auth_credential.oauth2.refresh_token = SECRET
    return config


def api_key() -> AuthConfig:
    known = AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key=SECRET)
    return AuthConfig(
        credential_key="looks",
        auth_scheme=APIKey.model_validate({"in": APIKeyIn.header, "name": "X-Key"}),
        raw_auth_credential=known,
        exchanged_auth_credential=known.model_copy(deep=True),
    )


def bearer() -> AuthConfig:
    http = HttpAuth(scheme="bearer", credentials=HttpCredentials(token=SECRET, password=SECRET))
    known = AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=http)
    return AuthConfig(credential_key="looks", auth_scheme=HTTPBearer(), raw_auth_credential=known)


def with_tool(config: AuthConfig, model: Any) -> Any:
    async def look(tool_context: ToolContext) -> str:
        """Looks."""
        if tool_context.get_auth_response(config) is None:
            tool_context.request_credential(config)
            return "pending"
        return "looked"

    return durable(LlmAgent(name="looks", model=model, tools=[look]))


def with_node(config: AuthConfig) -> Any:
    """The node looks with a token; then somebody is asked for something else."""

    async def look(node_input: str, ctx: Context) -> str:
        found = AuthHandler(config).get_auth_response(ctx.state)
        return str(found and found.oauth2 and found.oauth2.access_token)

    async def ask(node_input: str) -> AsyncIterator[RequestInput]:
        yield RequestInput(interrupt_id="sure", message=node_input, response_schema=None)

    async def done(node_input: Any) -> str:
        return f"done: {node_input}"

    node = FunctionNode(func=look, name="look", auth_config=config, rerun_on_resume=True)
    return durable(Workflow(name="looks", edges=[("START", node, ask, done)]))


@pytest.mark.parametrize("config", [oauth2, with_tokens, api_key, bearer])
@pytest.mark.parametrize("asks", ["tool", "node"])
async def test_people_are_not_shown_the_secrets_of_the_program(
    config: Callable[[], AuthConfig], asks: str
) -> None:
    with ModelServer(calls(("look", {}))) as model:
        async with clients() as connect:
            made = with_node(config()) if asks == "node" else with_tool(config(), connect(model))
            async with holdfast.Holdfast(":memory:", workflows=[made]) as app:
                run = await app.start(made, "hello")
                promise = await asked(app, run.id)
                said = str(promise) + await run.why()
                journal = str(await app.history(run.id))
    assert promise.name.startswith("adk_request_credential:")
    assert SECRET not in said
    assert config is with_tokens or SECRET not in journal
    assert ("https://localhost/login" in said) == (config in (oauth2, with_tokens))


class Tokens(BaseHTTPRequestHandler):
    """Gives a token for a code."""

    codes: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.codes.extend(form["code"])
        body = json.dumps({"access_token": f"token {len(self.codes)}", "token_type": "Bearer"})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def token_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Tokens) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("config", [oauth2, api_key, bearer])
def test_a_tools_request_is_the_same_on_replay(config: Callable[[], AuthConfig]) -> None:
    """Its own field names are not those that it is read by."""
    actions = EventActions(skip_summarization=False)
    actions.requested_auth_configs["call_1"] = AuthHandler(config()).generate_auth_request()

    class Replayed:
        actions = EventActions()

    _change_again(Replayed, {}, json.loads(json.dumps(_steered(actions))))  # type: ignore[arg-type]
    dumped = actions.model_dump(mode="json", exclude_none=True)
    assert Replayed.actions.model_dump(mode="json", exclude_none=True) == dumped
    found: Any = Replayed.actions.requested_auth_configs["call_1"].auth_scheme
    assert found.type_ == config().auth_scheme.type_


@pytest.mark.filterwarnings("ignore:.EXPERIMENTAL.")  # says ADK of what exchanges codes
async def test_who_logs_in_meanwhile_is_known_to_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state in the address is what the answer must carry back, and a code is good for one
    token."""
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    with token_url() as url:

        def process() -> tuple[Any, holdfast.Holdfast]:
            made = with_node(oauth2(url))
            return made, holdfast.Holdfast(store, workflows=[made])

        made, app = process()
        async with app:
            run = (await app.start(made, "hello")).id
            promise = await asked(app, run)
        state = re.findall(r"state=(\w+)", str(promise.prompt))[0]
        brought = {"state": state, "auth_response_uri": f"https://localhost/?code=7&state={state}"}
        made, app = process()
        async with app:
            await app.resolve(run, promise.name, {"auth_type": "oauth2", "oauth2": brought})
            sure = await asked(app, run, but=promise.name)
        made, app = process()
        async with app:
            await app.resolve(run, sure.name, "yes")
            assert await asyncio.wait_for(app.result(run), 120) == "done: yes"
            assert SECRET not in str(await app.history(run))
    assert "token 1" in str(sure.prompt) and Tokens.codes == ["7"]
