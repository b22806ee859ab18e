"""Agents that are kicked off by themselves, without a crew: the whole of a kickoff is a step.

Those that methods of a durable flow kick off need not be durable themselves: what they call are
steps of the method, named by where the method kicks them off.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from crewai import Agent
from crewai.agents.cache.cache_handler import CacheHandler
from crewai.lite_agent_output import LiteAgentOutput
from pydantic import BaseModel

import holdfast
from holdfast.adapters._shared import Place, as_thread_step, in_own_thread
from holdfast.adapters.crewai import values
from holdfast.adapters.crewai.active import (
    ONCE,
    SETTINGS,
    Active,
    Settings,
    active,
    entered,
    spend,
)
from holdfast.adapters.crewai.crews import fresh_agent

_MARK = "__holdfast_agents__"
_NAME = "__holdfast_name__"


def install() -> None:
    if hasattr(Agent.kickoff, _MARK):
        return
    Agent.kickoff = _placed(Agent.kickoff)  # type: ignore[method-assign]
    Agent.kickoff_async = _placed_async(Agent.kickoff_async)  # type: ignore[method-assign]


def _here(found: Active) -> contextlib.AbstractContextManager[None]:
    """CrewAI makes tasks and threads for a kickoff, which are not to be in the keys."""
    return entered(replace(found, place=Place()))


def _placed(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def kickoff(self: Agent, *args: Any, **kwargs: Any) -> Any:
        found = active()
        if found is None:
            return original(self, *args, **kwargs)
        with _here(found):
            return original(self, *args, **kwargs)

    setattr(kickoff, _MARK, True)
    return kickoff


def _placed_async(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def kickoff_async(self: Agent, *args: Any, **kwargs: Any) -> Any:
        found = active()
        if found is None:
            return await original(self, *args, **kwargs)
        with _here(found):
            return await original(self, *args, **kwargs)

    return kickoff_async


class DurableAgent(Agent):
    """What `durable(agent)` makes of an agent."""

    def kickoff(self, *args: Any, **kwargs: Any) -> Any:
        if holdfast.current_run() is None:
            return super().kickoff(*args, **kwargs)
        if asyncio._get_running_loop() is not None:
            return self.kickoff_async(*args, **kwargs)  # as CrewAI does
        return AgentKickoff(self, *args, **kwargs).in_this_thread()

    async def kickoff_async(self, *args: Any, **kwargs: Any) -> Any:
        if holdfast.current_run() is None:
            return await super().kickoff_async(*args, **kwargs)
        return await AgentKickoff(self, *args, **kwargs).awaited()


class AgentKickoff:
    """One kickoff in a run, of a copy of the agent."""

    def __init__(
        self,
        agent: Any,
        messages: Any,
        response_format: Any = None,
        input_files: Any = None,
        from_checkpoint: Any = None,
    ) -> None:
        if from_checkpoint is not None:
            raise holdfast.Unsupported(
                "from_checkpoint= inside of a run: the journal says where the agent is; kick it "
                "off without"
            )
        self.settings: Settings = agent.__dict__[SETTINGS]
        self._agent, self._executed = agent, False
        self._name: str = agent.__dict__[_NAME]
        self._given = (messages, response_format, input_files)
        if inspect.isclass(response_format) and issubclass(response_format, BaseModel):
            values.know([response_format])
        self._options: dict[str, Any] = {
            "shown": {"messages": values.plain(messages)},
            "retry": ONCE,
            "returns": values.known(),
        }

    def in_this_thread(self) -> LiteAgentOutput:
        return self._told(as_thread_step(self._name, self._work, **self._options))

    async def awaited(self) -> LiteAgentOutput:
        return self._told(await in_own_thread(self._name, self._work, **self._options))

    def _work(self) -> LiteAgentOutput:
        """In the step."""
        self._executed = True
        made = fresh_agent(self._agent.model_copy(), CacheHandler())
        with entered(Active(self.settings)):
            output: Any = Agent.kickoff(made, *self._given)
        kept: LiteAgentOutput = output
        return kept

    def _told(self, output: LiteAgentOutput) -> LiteAgentOutput:
        if not self._executed:
            spend(output.token_usage, missed=True)
        return output


def result_of(output: LiteAgentOutput) -> Any:
    return output.raw if output.pydantic is None else output.pydantic


def name_of(agent: Any) -> str:
    """Its role, in one line: in YAML it often has several, or ends with one."""
    return " ".join(agent.role.split())


def durable_agent(agent: Any, name: str, settings: Settings) -> Any:
    kind: Any = type(agent)
    object.__setattr__(agent, "__class__", _kind(kind))
    object.__setattr__(agent, SETTINGS, settings)
    object.__setattr__(agent, _NAME, name)
    return agent


@functools.cache
def _kind(kind: Any) -> Any:
    if issubclass(kind, DurableAgent):
        return kind
    return type(kind.__name__, (DurableAgent, kind), {"__module__": kind.__module__})


HOOKS = {
    "Agent.kickoff": getattr(Agent, "kickoff", None),
    "Agent.kickoff_async": getattr(Agent, "kickoff_async", None),
}
