"""Finds the agent in a user's file, and what runs it with and without Holdfast."""

from __future__ import annotations

import importlib.abc
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import holdfast
from holdfast.testing.crash_test.taps import TAP, Functions

MODULE = "agent_under_test"

_ADAPTERS = {
    ("agents", "Agent"): "openai_agents",
    ("pydantic_ai", "AbstractAgent"): "pydantic_ai",
    ("langgraph", "Pregel"): "langgraph",
    ("strands", "Agent"): "strands",
    ("strands", "MultiAgentBase"): "strands",
    ("agent_framework", "BaseAgent"): "agent_framework",
    ("agent_framework", "Workflow"): "agent_framework",
    ("google.adk", "BaseAgent"): "google_adk",
    ("google.adk", "Runner"): "google_adk",
    ("crewai", "Crew"): "crewai",
    ("crewai", "Flow"): "crewai",
}
_CLASSES = {("crewai", "Flow"): "crewai"}
_CLIENTS = {
    ("openai", "OpenAI"): "openai",
    ("openai", "AsyncOpenAI"): "openai",
    ("anthropic", "Anthropic"): "anthropic",
    ("anthropic", "AsyncAnthropic"): "anthropic",
}
"""Whose objects (or, as they are, classes) `durable` of which adapter takes: a package, a class or
a base of it."""


@dataclass
class Found:
    """What is to be tested: an agent of a framework, a function or a workflow."""

    module: ModuleType
    name: str
    thing: Any
    adapter: str | None

    def arguments(self, given: Any) -> list[Any]:
        if given is None:
            return []
        if self.adapter == "langgraph" and isinstance(given, str):
            return [{"messages": [{"role": "user", "content": given}]}]
        return [given]

    def plainly(self, given: Any) -> Any:
        """Runs it as it runs without Holdfast; outside of runs `durable` changes nothing."""
        workflow = self._workflow() if self.adapter else self.thing
        fn = workflow.fn if isinstance(workflow, holdfast.Workflow) else workflow
        return fn(*self.arguments(given))

    def durably(self) -> Any:
        if self.adapter or isinstance(self.thing, holdfast.Workflow):
            return self._workflow()
        for name, value in list(vars(self.module).items()):
            adapter = _adapter_of(value, {**_ADAPTERS, **_CLIENTS})
            if adapter is not None:
                setattr(self.module, name, _durable(adapter)(value))
        return holdfast.workflow(self.thing)

    def _workflow(self) -> Any:
        if isinstance(self.thing, holdfast.Workflow):
            return self.thing
        assert self.adapter is not None
        durable = _durable(self.adapter)
        try:
            return _own_workflow(self.thing) or _own_workflow(durable(self.thing))
        except holdfast.BadArguments:
            # It has no name, which runs need: let it be the one it has in the file.
            return _own_workflow(durable(self.thing, name=self.name))


class _Loader(importlib.abc.InspectLoader):
    """Lets the functions of the file be seen; unlike others, it leaves no compiled file behind."""

    def __init__(self, file: Path, functions: Functions) -> None:
        self._file, self._functions = file, functions

    def get_source(self, fullname: str) -> str:
        return self._file.read_text()

    def get_code(self, fullname: str) -> CodeType:
        return self._functions.compile(self._file)


def load(file: Path, functions: Functions) -> ModuleType:
    """Imports the file; its functions are seen."""
    if not file.is_file():
        raise holdfast.BadArguments(f"there is no file {file}")
    loader = _Loader(file, functions)
    spec = importlib.util.spec_from_loader(MODULE, loader, origin=str(file))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(file)
    setattr(module, TAP, functions.tap)
    sys.modules[MODULE] = module
    sys.path.insert(0, str(file.parent))
    loader.exec_module(module)
    return module


def find(module: ModuleType, name: str | None) -> Found:
    if name is not None:
        if not hasattr(module, name):
            raise holdfast.BadArguments(f"{module.__file__} has no {name!r}: {_listed(module)}")
        thing = getattr(module, name)
        adapter = _adapter_of(thing, _ADAPTERS)
        if adapter is None and not isinstance(thing, holdfast.Workflow | Callable):
            raise holdfast.BadArguments(
                f"{name} in {module.__file__} is neither an agent nor a function: {thing!r}"
            )
        return Found(module, name, thing, adapter)
    candidates = _candidates(module)
    if len(candidates) != 1:
        raise holdfast.BadArguments(f"which one of {module.__file__}? {_listed(module)}")
    return candidates[0]


def _candidates(module: ModuleType) -> list[Found]:
    """Agents come before workflows, workflows before a function `main`; each thing once."""
    things = {id(value): (name, value) for name, value in vars(module).items()}.values()
    agents = [
        Found(module, name, value, adapter)
        for name, value in things
        if (adapter := _adapter_of(value, _ADAPTERS)) is not None
    ]
    workflows = [
        Found(module, name, value, None)
        for name, value in things
        if isinstance(value, holdfast.Workflow)
    ]
    main = getattr(module, "main", None)
    mains = [Found(module, "main", main, None)] if inspect.isfunction(main) else []
    return agents or workflows or mains


def _listed(module: ModuleType) -> str:
    names = [found.name for found in _candidates(module)]
    file = Path(str(module.__file__)).name
    if not names:
        return f"no agent and no workflow is in it; name a function: {file}:my_function"
    return f"say {' or '.join(f'{file}:{name}' for name in names)}"


def _adapter_of(thing: object, known: dict[tuple[str, str], str]) -> str | None:
    kind: type = type(thing)
    if isinstance(thing, type) and thing.__module__ == MODULE:
        kind, known = thing, _CLASSES
    for base in kind.__mro__:
        for (package, name), adapter in known.items():
            if base.__name__ == name and f"{base.__module__}.".startswith(f"{package}."):
                return adapter
    return None


def _durable(adapter: str) -> Callable[..., Any]:
    durable: Callable[..., Any] = importlib.import_module(f"holdfast.adapters.{adapter}").durable
    return durable


def _own_workflow(agent: Any) -> Any:
    from holdfast.adapters._shared import AGENT_WORKFLOW

    return getattr(agent, AGENT_WORKFLOW, None)
