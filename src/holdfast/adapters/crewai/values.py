"""What a crew returns, as JSON and back."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from crewai.crews.crew_output import CrewOutput
from crewai.tasks.task_output import TaskOutput
from crewai.types.usage_metrics import UsageMetrics
from pydantic import BaseModel
from pydantic_core import to_jsonable_python


def plain(value: Any) -> Any:
    """JSON-ready, whatever it is: for what is shown, or compared."""
    return to_jsonable_python(value, fallback=lambda one: type(one).__name__)


def dump(output: CrewOutput, tasks: Sequence[Any]) -> dict[str, Any]:
    return {
        "raw": output.raw,
        "json_dict": plain(output.json_dict),
        "pydantic": _dumped(output.pydantic),
        "token_usage": plain(output.token_usage),
        "tasks": [_dump_task(one, tasks) for one in output.tasks_output],
    }


def _dump_task(output: TaskOutput, tasks: Sequence[Any]) -> dict[str, Any]:
    fields = {name: value for name, value in output if name != "pydantic"}
    index = next((n for n, task in enumerate(tasks) if task.output is output), None)
    return {**plain(fields), "pydantic": _dumped(output.pydantic), "task": index}


def _dumped(model: BaseModel | None) -> Any:
    return None if model is None else model.model_dump(mode="json")


def load(kept: dict[str, Any], tasks: Sequence[Any]) -> CrewOutput:
    """The tasks are told of their outputs, too."""
    outputs = [_load_task(one, tasks) for one in kept["tasks"]]
    last = outputs[-1].pydantic if outputs else None
    return CrewOutput(
        raw=kept["raw"],
        json_dict=kept["json_dict"],
        pydantic=last if kept["pydantic"] is not None else None,
        token_usage=UsageMetrics(**kept["token_usage"]),
        tasks_output=outputs,
    )


def _load_task(kept: dict[str, Any], tasks: Sequence[Any]) -> TaskOutput:
    fields = {name: value for name, value in kept.items() if name not in ("pydantic", "task")}
    task = tasks[kept["task"]] if kept["task"] is not None else None
    output = TaskOutput(**fields)
    kind = class_of(task)
    if kept["pydantic"] is not None and kind is not None:
        output.pydantic = kind.model_validate(kept["pydantic"])
    if task is not None:
        task.output = output
    return output


def class_of(task: Any) -> type[BaseModel] | None:
    """What a task's output is an instance of."""
    for name in ("output_pydantic", "response_model"):
        kind = getattr(task, name, None)
        if inspect.isclass(kind) and issubclass(kind, BaseModel):
            return kind
    return None


def result_of(output: CrewOutput) -> Any:
    """What the caller of a crew mostly wants of it."""
    if output.pydantic is not None:
        return output.pydantic
    return output.json_dict if output.json_dict is not None else output.raw
