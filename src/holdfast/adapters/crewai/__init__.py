"""CrewAI's crews, flows and agents.

    crew = durable(Crew(name="research", agents=[...], tasks=[...]))

    @durable
    class Report(Flow[State]): ...

    agent = durable(Agent(role="Researcher", ...))  # to be kicked off by itself

Inside of runs each kickoff is a step; inside it each call of a model and of a tool, and each method
of a flow. Tasks with `human_input=True` and methods with `@human_feedback` wait durably. Outside of
runs they are what they were. See docs/adapters.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from crewai import Agent, Crew
from crewai.flow.flow import Flow
from crewai.llms.base_llm import BaseLLM
from crewai.utilities.llm_utils import create_llm

import holdfast
from holdfast.adapters._shared import Policy, make_startable, require_hooks, require_name
from holdfast.adapters.crewai import agents, crews, flows, frames, llm, mcp, parts, prompts, values
from holdfast.adapters.crewai import tools as tools_
from holdfast.adapters.crewai.active import SETTINGS, OnOverflow, Settings

C = TypeVar("C")

_TESTED = "1.15.30"
_UNNAMED = "crew"  # what CrewAI calls a crew that was given no name


def durable(
    crew: C,
    *,
    name: str | None = None,
    retry: holdfast.Retry | None = None,
    tools: holdfast.Retry | Mapping[str, holdfast.Retry] | None = None,
    models: Sequence[Any] = (),
    on_overflow: OnOverflow | None = None,
    explain: bool = False,
) -> C:
    """A crew, a flow, a class of flows or an agent that goes on where it was, whatever dies.

    name: of its runs, if not its own. retry: for calls of models, and for methods of flows; tools:
    for calls of tools, of all or by name; the engine's policy by default. models: whom to ask when
    an agent's own model cannot be reached any more, in this order: LLM(...), or names. on_overflow:
    makes shorter messages of those that a model could not read. explain: prints what will be
    journaled.
    """
    _check_hooks()
    settings = Settings(Policy(retry=retry, tools=tools), _models(models), on_overflow)
    for module in (llm, tools_, parts, mcp, prompts, agents):
        module.install()
    values.register()
    given: Any = crew
    made: Any
    if isinstance(given, Crew):
        made = crews.durable_crew(given, settings)
        own_name = name or (given.name if given.name != _UNNAMED else None)
    elif isinstance(given, Agent):
        own_name = name or agents.name_of(given)
        made = agents.durable_agent(given, own_name, settings)
    elif isinstance(given, Flow) or (isinstance(given, type) and issubclass(given, Flow)):
        made = flows.durable_flow(given, settings)
        kind = flows.class_of(given)
        own_name = name or (None if kind is given else made.name) or kind.__name__
    else:
        raise TypeError(
            f"durable() takes a Crew, a Flow, a class of flows or an Agent, not {given!r}"
        )
    if own_name is not None:
        make_startable(made, _workflow(made, require_name(given, own_name), settings))
    if explain:
        _explain(made, own_name)
    return made  # type: ignore[no-any-return]


def _models(given: Sequence[Any]) -> list[BaseLLM]:
    made = [one if isinstance(one, BaseLLM | str) else None for one in given]
    if None in made:
        raise TypeError(f"models=: such as LLM(model=...), or names of models, not {given!r}")
    return [llm for one in made if (llm := create_llm(one)) is not None]


def _workflow(made: Any, name: str, settings: Settings) -> holdfast.Workflow[Any, Any]:
    alone = replace(settings, is_own_run=True)

    async def run_crew(inputs: Any = None, **options: Any) -> Any:
        if holdfast.current_run() is None:
            return values.result_of(await made.kickoff_async(inputs, **options))
        kickoff = crews.Kickoff(made, inputs, **options)
        kickoff.settings = alone
        return values.result_of(await kickoff.awaited())

    async def run_agent(messages: Any, **options: Any) -> Any:
        return agents.result_of(await agents.AgentKickoff(made, messages, **options).awaited())

    async def run_flow(inputs: Any = None, **options: Any) -> Any:
        flow = flows.another(made)
        object.__setattr__(flow, SETTINGS, alone)
        flow.stream = False  # nobody reads it
        return values.result_of(await flow.kickoff_async(inputs, **options))

    if isinstance(made, Agent):
        return holdfast.workflow(name=name)(run_agent)
    run: Callable[..., Any] = run_crew if isinstance(made, Crew) else run_flow
    if isinstance(made, Crew):
        run.__annotations__["return"] = values.class_of(made.tasks[-1]) or Any
    else:
        run.__annotations__["return"] = flows.classes_in(made)
    return holdfast.workflow(name=name)(run)


def _check_hooks() -> None:
    modules = (llm, tools_, parts, crews, flows, frames, mcp, prompts, agents)
    require_hooks("crewai", _TESTED, {k: v for m in modules for k, v in m.HOOKS.items()})


def _explain(made: Any, name: str | None) -> None:
    print(f"{name or 'this crew'}: inside of runs these are steps:")
    if isinstance(made, Agent):
        print(f"  each kickoff, as {name}")
        print("  calls of models, as llm")
        names = {tool.name for tool in made.tools or ()}
        print(f"  calls of tools, as <tool>:<id of the call>: {', '.join(sorted(names))}")
        return
    print(f"  each kickoff, as {name or made.name}")
    if isinstance(made, Crew):
        names = {tool.name for agent in made.agents for tool in agent.tools or ()}
        print("  calls of models, as <task>.llm")
        print(f"  calls of tools, as <task>.<tool>:<id of the call>: {', '.join(sorted(names))}")
        asked = [task.name or task.description for task in made.tasks if task.human_input]
    else:
        methods = flows.class_of(made).flow_definition().methods
        print(f"  methods: {', '.join(methods)}")
        print("  calls of models, as llm, and of tools, in crews and agents of its methods")
        asked = [method for method, one in methods.items() if one.human_feedback is not None]
    if asked:
        print(f"  approvals, for: {', '.join(asked)}")
