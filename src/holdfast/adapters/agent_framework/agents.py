"""Runs of agents.

An agent's own loop runs as it is. Where it would stop and ask its caller to approve calls of tools,
or to execute some elsewhere, the run waits for the answers and the agent goes on with them.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from agent_framework import (
    Agent,
    AgentResponse,
    AgentResponseUpdate,
    BackgroundAgentsProvider,
    BaseAgent,
    Content,
    HistoryProvider,
    Message,
    MiddlewareFailure,
    ResponseStream,
    add_usage_details,
    normalize_tools,
)

import holdfast
from holdfast.adapters._questions import about_call
from holdfast.adapters._shared import under_free_name
from holdfast.adapters.agent_framework import mcp, refusals
from holdfast.adapters.agent_framework.active import (
    Active,
    Options,
    active,
    entered,
    options_of,
)

_ROUNDS_MAX = 1000
_CALL, _APPROVAL = "function_call", "function_approval_request"


def install() -> None:
    run, create_session = Agent.run, BaseAgent.create_session
    if not hasattr(run, "__wrapped__"):
        setattr(Agent, "run", _durable_run(run))  # noqa: B010
        setattr(BaseAgent, "create_session", _durable_session(create_session))  # noqa: B010
    refusals.install()


def _durable_run(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(self: Any, messages: Any = None, *, stream: bool = False, **named: Any) -> Any:
        options = options_of(self)
        if options is None:
            return original(self, messages, stream=stream, **named)
        turns = Turns(original, self, options, named)
        return turns.streamed(messages) if stream else turns.answered(messages)

    return run


def _durable_session(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_session(self: Any, *, session_id: str | None = None) -> Any:
        if session_id is None and options_of(self) is not None:
            session_id = str(holdfast.uuid4())  # the same on every replay
        return original(self, session_id=session_id)

    return create_session


def require_supported(agent: Any) -> None:
    if any(isinstance(one, BackgroundAgentsProvider) for one in agent.context_providers):
        raise holdfast.Unsupported(
            f"{agent.name!r} has a BackgroundAgentsProvider: what it starts outlives the calls "
            "that a run journals, and is lost with its process. Give it the agents as tools, or "
            "start runs of their own by holdfast.start"
        )


class Turns:
    """One call of an agent: as many runs of it as it needs answers."""

    def __init__(
        self, run: Callable[..., Any], agent: Any, options: Options, named: dict[str, Any]
    ) -> None:
        require_supported(agent)
        around = active()
        self._waits = options.approvals and not (around is not None and around.asks_itself)
        self._active = Active(options, agent.name or "agent")
        self._session = named.get("session")
        self._original, self._agent, self._named = run, agent, named

    async def _begin(self) -> None:
        agent, named = self._agent, self._named
        with entered(self._active):
            agent, named = await _with_servers(agent, named, self._active)
        if self._session is None and self._waits and _may_ask(agent, named):
            # Only a session knows which answers were asked for.
            self._session = agent.create_session()
        self._active = dataclasses.replace(self._active, session=self._session)
        self._run = functools.partial(self._original, agent, **{**named, "session": self._session})

    async def answered(self, messages: Any) -> AgentResponse[Any]:
        await self._begin()
        given, responses = messages, []
        for _ in range(_ROUNDS_MAX):
            with entered(self._active), _program_errors():
                responses.append(await self._run(given, stream=False))
            answers = await self._answers(responses[-1])
            if answers is None:
                break
            given = _said(answers)
        return _merged(responses)

    def streamed(self, messages: Any) -> ResponseStream[AgentResponseUpdate, AgentResponse[Any]]:
        responses: list[AgentResponse[Any]] = []

        async def updates() -> AsyncIterator[AgentResponseUpdate]:
            await self._begin()
            given = messages
            for _ in range(_ROUNDS_MAX):
                with entered(self._active):
                    stream = self._run(given, stream=True)
                stream.with_pull_context_manager(lambda: entered(self._active))
                async with stream:
                    with _program_errors():
                        async for update in stream:
                            yield update
                        with entered(self._active):
                            responses.append(await stream.get_final_response())
                answers = await self._answers(responses[-1])
                if answers is None:
                    break
                given = _said(answers)

        return ResponseStream(updates(), finalizer=lambda _: _merged(responses))

    # People

    async def _answers(self, response: AgentResponse[Any]) -> list[Content] | None:
        """None if nothing is asked, or the caller is to answer."""
        requests = response.user_input_requests
        if not requests or not self._waits:
            return None
        if any(request.type not in (_CALL, _APPROVAL) for request in requests):
            return None
        if self._session is None:
            raise holdfast.Unsupported(
                f"{self._active.name!r} asks for answers, and only a session knows later that it "
                "did: call agent.run(..., session=agent.create_session())"
            )
        return list(await asyncio.gather(*map(_answer, requests)))


async def _with_servers(
    agent: Any, named: dict[str, Any], now: Active
) -> tuple[Any, dict[str, Any]]:
    """The agent and what it is asked with, with MCP servers as a run has them."""
    tools = normalize_tools(named.get("tools") or [])
    if not agent.mcp_tools and not any(map(mcp.is_server, tools)):
        return agent, named
    given = named.get("function_invocation_kwargs") or {}
    made = copy.copy(agent)
    made.mcp_tools = [await mcp.offered(server, now, given) for server in agent.mcp_tools]
    if tools:
        named = {**named, "tools": [await mcp.offered(tool, now, given) for tool in tools]}
    return made, named


def _may_ask(agent: Any, named: dict[str, Any]) -> bool:
    if any(not isinstance(one, HistoryProvider) for one in agent.context_providers):
        return True  # they may offer tools
    servers = [one for server in agent.mcp_tools for one in server.functions]
    offered = normalize_tools([agent.default_options.get("tools") or [], named.get("tools") or []])
    return any(
        getattr(tool, "approval_mode", None) == "always_require"
        or getattr(tool, "declaration_only", False)
        for tool in (*offered, *servers)
    )


def _answer(request: Content) -> Awaitable[Content]:
    return approved(request) if request.type == _APPROVAL else executed_elsewhere(request)


def _said(answers: list[Content]) -> list[Message]:
    results = [one for one in answers if one.type == "function_result"]
    decisions = [one for one in answers if one.type != "function_result"]
    found = [Message("tool", results)] if results else []
    return [*found, Message("user", decisions)] if decisions else found


def approved(request: Content) -> Awaitable[Content]:
    """Somebody's decision about a call of a tool."""
    call = request.function_call
    assert call is not None
    prompt = about_call(call.name, call.parse_arguments())
    name = f"{call.name}:{call.call_id}"
    approval = under_free_name(name, lambda name: holdfast.approval(name, prompt))

    async def decided() -> Content:
        decision = await approval
        answer = request.to_function_approval_response(approved=decision.approved)
        if decision.approved or not decision.comment:
            return answer
        return refusals.with_comment(answer, decision.comment)

    return decided()


def executed_elsewhere(call: Content) -> Awaitable[Content]:
    prompt = about_call(call.name, call.parse_arguments())
    name = f"{call.name}:{call.call_id}"
    promise: Any = under_free_name(name, lambda name: holdfast.promise(name, prompt=prompt))

    async def done() -> Content:
        return Content.from_function_result(
            call_id=call.call_id or "", id=call.id, result=await promise
        )

    return done()


class _program_errors:
    """What a tool's step could not say through the framework."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, MiddlewareFailure):
            if isinstance(error.__cause__, holdfast.HoldfastError):
                raise error.__cause__


def _merged(responses: list[AgentResponse[Any]]) -> AgentResponse[Any]:
    """As if the agent had not stopped in between."""
    *earlier, last = responses
    if not earlier:
        return last
    said = [message for response in earlier for message in response.messages]
    last.messages = [*(kept for one in said if (kept := _unasked(one))), *last.messages]
    for response in earlier:
        last.usage_details = add_usage_details(response.usage_details, last.usage_details)
    return last


def _unasked(message: Message) -> Message | None:
    contents = [one for one in message.contents if one.type != _APPROVAL]
    if len(contents) == len(message.contents):
        return message
    if not contents:
        return None
    return Message(message.role, contents, author_name=message.author_name)
