"""CrewAI's crews.

    crew = durable(Crew(name="research", agents=[...], tasks=[...]))

Inside of runs each kickoff is a step, and inside it each call of a model and of a tool; tasks with
`human_input=True` wait durably. Outside of runs it is the crew that it was. See docs/adapters.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from crewai import Crew
from crewai.llms.base_llm import BaseLLM
from crewai.utilities.llm_utils import create_llm

import holdfast
from holdfast.adapters._shared import Policy, make_startable, require_hooks, require_name
from holdfast.adapters.crewai import crews, llm, parts, values
from holdfast.adapters.crewai import tools as tools_
from holdfast.adapters.crewai.active import OnOverflow, Settings

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
    """A crew that goes on where it was, whatever dies."""
    if not isinstance(crew, Crew):
        raise TypeError(f"durable() takes a Crew, not {crew!r}")
    require_hooks("crewai", _TESTED, llm.HOOKS | tools_.HOOKS | parts.HOOKS | crews.HOOKS)
    settings = Settings(Policy(retry=retry, tools=tools), _models(models), on_overflow)
    for module in (llm, tools_, parts):
        module.install()
    made: Any = crews.durable_crew(crew, settings)
    own_name = name or (crew.name if crew.name != _UNNAMED else None)
    if own_name is not None:
        make_startable(made, _workflow(made, require_name(crew, own_name), settings))
    return made


def _models(given: Sequence[Any]) -> list[BaseLLM]:
    made = [create_llm(one) for one in given]
    for one in made:
        if not isinstance(one, BaseLLM):
            raise TypeError(f"models=: such as LLM(model=...), or names of models, not {one!r}")
    return [one for one in made if one is not None]


def _workflow(crew: Any, name: str, settings: Settings) -> holdfast.Workflow[Any, Any]:
    async def run(inputs: Any = None, **options: Any) -> Any:
        kickoff = crews.Kickoff(crew, inputs, **options)
        kickoff.settings = replace(settings, is_own_run=True)
        return values.result_of(await kickoff.awaited())

    run.__annotations__["return"] = values.class_of(crew.tasks[-1]) or Any
    return holdfast.workflow(name=name)(run)
