"""The parts of a crew: its tasks, its agents' memory and knowledge.

A task gives its name to what is called in it. What an agent recalls and remembers is a step, with
all that its memory asks of models for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import crewai.agent.core
from crewai import Agent, Task
from crewai.agents.agent_builder.base_agent_executor import BaseAgentExecutor
from crewai.agents.agent_executor import AgentExecutor, AgentExecutorState
from crewai.agents.step_executor import StepExecutor

from holdfast.adapters.crewai.active import active, call, entered, inside

_MARK = "__holdfast_part__"


def install() -> None:
    if hasattr(Task._execute_core, _MARK):
        return
    Task._execute_core = _execute_core(Task._execute_core)  # type: ignore[method-assign]
    Task._execute_task_async = _told_of_all(  # type: ignore[method-assign]
        Task._execute_task_async
    )
    StepExecutor.execute = _planned(StepExecutor.execute)  # type: ignore[method-assign]
    Agent._retrieve_memory_context = _recalling(  # type: ignore[method-assign]
        Agent._retrieve_memory_context
    )
    BaseAgentExecutor._save_to_memory = _remembering(  # type: ignore[method-assign]
        BaseAgentExecutor._save_to_memory
    )
    AgentExecutor._create_initial_state = _initial_state(  # type: ignore[method-assign]
        AgentExecutor._create_initial_state
    )
    core: Any = crewai.agent.core
    core.handle_knowledge_retrieval = _knowing(core.handle_knowledge_retrieval)


def _execute_core(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def execute(self: Task, agent: Any, *args: Any, **kwargs: Any) -> Any:
        found = active()
        label = _label(self, agent or self.agent) if found is not None else None
        if found is None or label is None:
            return original(self, agent, *args, **kwargs)
        with inside(found, label):
            return original(self, agent, *args, **kwargs)

    setattr(execute, _MARK, True)
    return execute


def _label(task: Task, agent: Any) -> str | None:
    """The task's name, if it has one to itself; otherwise its number."""
    tasks = getattr(getattr(agent, "crew", None), "tasks", None) or ()
    number = next((n for n, one in enumerate(tasks, 1) if one is task), None)
    if number is None:
        return None
    is_named = task.name and [one.name for one in tasks].count(task.name) == 1
    return task.name if is_named else f"task{number}"


def _told_of_all(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def execute(self: Task, agent: Any, context: Any, tools: Any, future: Future[Any]) -> None:
        try:
            original(self, agent, context, tools, future)
        except BaseException as gone:  # the run leaves: whoever waits for the task goes with it
            future.set_exception(gone)

    return execute


def _planned(original: Callable[..., Any]) -> Callable[..., Any]:
    """Steps of a plan may be taken at once."""

    @functools.wraps(original)
    def execute(self: StepExecutor, todo: Any, *args: Any, **kwargs: Any) -> Any:
        found = active()
        if found is None:
            return original(self, todo, *args, **kwargs)
        with inside(found, f"step{todo.step_number}"):
            return original(self, todo, *args, **kwargs)

    return execute


def _recalling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def recall(self: Agent, task: Any, task_prompt: str) -> Any:
        found = active()
        if found is None or not self._is_any_available_memory():
            return original(self, task, task_prompt)
        return call(found, "recall", lambda: _apart(original, self, task, task_prompt))

    return recall


def _remembering(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def remember(self: Any, output: Any) -> None:
        found = active()
        memory = getattr(self.agent, "memory", None) or getattr(self.crew, "_memory", None)
        if found is None or not memory:
            return original(self, output)

        def work() -> None:
            _apart(original, self, output)
            memory.drain_writes()

        return call(found, "remember", work)

    return remember


def _knowing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def know(agent: Any, *args: Any, **kwargs: Any) -> Any:
        found = active()
        crew = getattr(agent, "crew", None)
        if found is None or not (agent.knowledge or getattr(crew, "knowledge", None)):
            return original(agent, *args, **kwargs)
        return call(found, "knowledge", lambda: _apart(original, agent, *args, **kwargs))

    return know


def _initial_state(original: Callable[..., Any]) -> Callable[..., Any]:
    """Each kickoff has executors of its own. CrewAI would make a class for the state of each, which
    takes longer than a step, and put a plain state in its place at once."""

    @functools.wraps(original)
    def create(self: AgentExecutor) -> Any:
        return original(self) if active() is None else AgentExecutorState()

    return create


def _apart(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What it asks of models, perhaps in threads that outlive it, is in the step with the rest."""
    with entered(None):
        return original(*args, **kwargs)


HOOKS = {
    "Task._execute_core": getattr(Task, "_execute_core", None),
    "Task._execute_task_async": getattr(Task, "_execute_task_async", None),
    "StepExecutor.execute": getattr(StepExecutor, "execute", None),
    "AgentExecutor._create_initial_state": getattr(AgentExecutor, "_create_initial_state", None),
    "Agent._retrieve_memory_context": getattr(Agent, "_retrieve_memory_context", None),
    "BaseAgentExecutor._save_to_memory": getattr(BaseAgentExecutor, "_save_to_memory", None),
    "handle_knowledge_retrieval": getattr(crewai.agent.core, "handle_knowledge_retrieval", None),
}
