"""The runner of durable agents. It prepares a run and lets the SDK's own runner do it.

Approvals: where the SDK would stop and give its caller the calls to be approved, a run waits for
one `holdfast.approval` each, and goes on. Their names are made of the tool's name and the model's
id for the call. A rejection's comment is what the model is told.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from agents import Agent, Model, RunConfig, RunResult, RunResultStreaming, RunState

import holdfast
from holdfast.adapters._questions import about_call
from holdfast.adapters._shared import Place, blocking, under_free_name
from holdfast.adapters.openai_agents import hooks
from holdfast.adapters.openai_agents.calls import durable_guardrail, install_time_outs
from holdfast.adapters.openai_agents.copies import durable_copy
from holdfast.adapters.openai_agents.model import DurableProvider, as_durable
from holdfast.adapters.openai_agents.options import Active, Options, active, entered, options_of
from holdfast.adapters.openai_agents.sessions import durable_session
from holdfast.adapters.openai_agents.tools import is_in_sandbox

_KEPT_ON_RESUME = ("run_config", "hooks", "session", "error_handlers")


def install() -> None:
    """Makes the runner the SDK's default one, in front of whichever is."""
    install_time_outs()
    before = hooks.get_default_agent_runner()
    if not isinstance(before, DurableRunner):
        hooks.set_default_agent_runner(DurableRunner(before))


def _options(agent: Agent[Any]) -> Options | None:
    """None if the agent is to be left alone; in a step, that is what works in a sandbox, too."""
    now = active()
    if now is not None and not now.place.is_near and is_in_sandbox(agent):
        return None
    found: Options | None = options_of(agent)
    return found


class DurableRunner(hooks.AgentRunner):
    """Outside of runs, and for agents that nobody made durable, the runner before it."""

    def __init__(self, before: Any) -> None:
        self._before = before

    async def run(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResult:
        known = _options(starting_agent)
        if known is None:
            return await self._before.run(starting_agent, input, **options)
        agent = durable_copy(starting_agent, known)
        with _prepared(known, options) as given:
            result = await self._before.run(agent, input, **given)
            while result.interruptions and known.approvals:
                state = result.to_state()
                await _decide(state, result.interruptions)
                result = await self._before.run(agent, state, **_resumed(given))
        return result

    def run_sync(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResult:
        if _options(starting_agent) is None:
            return self._before.run_sync(starting_agent, input, **options)
        return blocking(self.run(starting_agent, input, **options), "use `await Runner.run`")

    def run_streamed(
        self, starting_agent: Agent[Any], input: Any, **options: Any
    ) -> RunResultStreaming:
        known = _options(starting_agent)
        if known is None:
            return self._before.run_streamed(starting_agent, input, **options)
        agent = durable_copy(starting_agent, known)

        def begin(input: Any, options: dict[str, Any]) -> RunResultStreaming:
            with _prepared(known, options) as given:
                return self._before.run_streamed(agent, input, **given)

        result = begin(input, options)
        result.__class__ = DurableStream
        result.__dict__["_holdfast_resume"] = (
            (lambda state: begin(state, _resumed(options))) if known.approvals else None
        )
        return result


class DurableStream(RunResultStreaming):
    """A streamed run that goes on when its calls were approved or rejected."""

    async def stream_events(self) -> AsyncIterator[Any]:
        resume = self.__dict__["_holdfast_resume"]
        async with contextlib.aclosing(super().stream_events()) as events:  # type: ignore[type-var]
            async for event in events:
                yield event
        while self.interruptions and resume is not None:
            state = self.to_state()
            await _decide(state, self.interruptions)
            rest = resume(state)
            try:
                async with contextlib.aclosing(rest.stream_events()) as events:
                    async for event in events:
                        yield event
            finally:
                # What the caller holds is the whole: its output, items and usage.
                self.__dict__.update(rest.__dict__)


@contextlib.contextmanager
def _prepared(options: Options, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What to give to the SDK's runner."""
    config = given.get("run_config")
    config = RunConfig() if config is None else hooks.coerce_run_config(config)
    provider = config.model_provider
    if isinstance(provider, DurableProvider):  # of the agent around this one
        provider = provider._inner
    prepared = dataclasses.replace(
        config,
        model=as_durable(config.model, options)
        if isinstance(config.model, Model)
        else config.model,
        model_provider=DurableProvider(provider, options),
        input_guardrails=[durable_guardrail(one) for one in config.input_guardrails or ()],
        output_guardrails=[durable_guardrail(one) for one in config.output_guardrails or ()],
    )
    with entered(Active(options, provider, Place())):
        session = durable_session(given.get("session"))
        yield {**given, "run_config": prepared, "session": session}


def _resumed(given: dict[str, Any]) -> dict[str, Any]:
    """The state knows the rest."""
    return {name: given[name] for name in _KEPT_ON_RESUME if name in given}


# Approvals


async def _decide(state: RunState[Any], pending: list[Any]) -> None:
    # All are asked for before the first is awaited, so that they can be answered in any order.
    asked = [(item, _approval(item)) for item in pending]
    for item, approval in asked:
        decision: holdfast.Decision = await approval
        if decision.approved:
            state.approve(item)
        else:
            state.reject(item, rejection_message=decision.comment)


def _approval(item: Any) -> Any:
    call_id = item.call_id or "call"
    prompt = about_call(item.tool_name, _arguments(item.arguments), agent=item.agent.name)
    name = f"{item.tool_name}:{call_id}"
    return under_free_name(name, lambda name: holdfast.approval(name, prompt))


def _arguments(given: Any) -> Any:
    try:
        return json.loads(given)
    except (TypeError, ValueError):
        return given if isinstance(given, str) else None
