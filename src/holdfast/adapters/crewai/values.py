"""What crews and flows return, in a durable form."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterable
from typing import Any

from crewai.crews.crew_output import CrewOutput
from crewai.flow.human_feedback import HumanFeedbackResult
from crewai.lite_agent_output import LiteAgentOutput
from crewai.tasks.task_output import TaskOutput
from crewai.types.usage_metrics import UsageMetrics
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

import holdfast

_known: dict[Any, None] = {}  # classes of what the durable crews and flows of this process return


def plain(value: Any) -> Any:
    """JSON-ready, whatever it is: for what is shown, or compared."""
    return to_jsonable_python(value, fallback=lambda one: type(one).__name__)


def _fields(output: Any) -> dict[str, Any]:
    """What CrewAI says of an output is plain data, but for the model that a user's class makes."""
    kept = {name: plain(value) for name, value in output if name not in _MODELS}
    return kept | {name: getattr(output, name) for name in _MODELS if hasattr(output, name)}


_MODELS = ("pydantic", "tasks_output")


def register() -> None:
    """So that they can be recorded wherever they turn up."""
    for kind in (TaskOutput, CrewOutput, LiteAgentOutput):
        holdfast.register(
            kind, name=f"crewai.{kind.__name__}", encode=_fields, decode=_decoder(kind)
        )
    holdfast.register(UsageMetrics, name="crewai.UsageMetrics")
    holdfast.register(HumanFeedbackResult, name="crewai.HumanFeedbackResult")


def _decoder(kind: Any) -> Any:
    def decode(kept: dict[str, Any]) -> Any:
        models = {name: kept.pop(name) for name in _MODELS if name in kept}
        made = kind(**kept)
        for name, value in models.items():
            made.__dict__[name] = value
        return made

    return decode


def know(classes: Iterable[Any]) -> None:
    """Records may hold these from now on."""
    _known.update(dict.fromkeys(classes))


def known() -> Any:
    """An annotation that leads to all of them."""
    return tuple.__class_getitem__(tuple(_known)) if _known else Any


def class_of(task: Any) -> type[BaseModel] | None:
    """What a task's output is an instance of."""
    for name in ("output_pydantic", "response_model"):
        kind = getattr(task, name, None)
        if inspect.isclass(kind) and issubclass(kind, BaseModel):
            return kind
    return None


def annotations_of(function: Any) -> list[Any]:
    try:
        hints = typing.get_type_hints(inspect.unwrap(function))
    except Exception:  # they cannot be resolved, and lead nowhere
        return []
    return [hints["return"]] if "return" in hints else []


def result_of(output: Any) -> Any:
    """What whoever starts a crew or a flow mostly wants of it; JSON-ready but for classes that are
    known."""
    if isinstance(output, CrewOutput):
        if output.pydantic is not None:
            return output.pydantic
        return output.json_dict if output.json_dict is not None else output.raw
    if isinstance(output, HumanFeedbackResult):
        return dataclasses.asdict(output)
    return output
