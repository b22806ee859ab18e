"""Code that a model has written: it is executed once, in a step.

ADK calls an executor in a thread. Executors are of many classes, so each class is wrapped when an
agent that has one of it asks its model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionResult

from holdfast.adapters._shared import as_thread_step
from holdfast.adapters.google_adk.options import active


def wrap_executor(agent: Any) -> None:
    executor = getattr(agent, "code_executor", None)
    if not isinstance(executor, BaseCodeExecutor):
        return
    for kind in type(executor).__mro__:
        execute = vars(kind).get("execute_code")
        if execute is not None and kind is not BaseCodeExecutor:
            if not hasattr(execute, "__holdfast_before__"):
                made = functools.wraps(execute)(_once(execute))
                made.__holdfast_before__ = execute  # type: ignore[attr-defined]
                setattr(kind, "execute_code", made)  # noqa: B010
            return


def _once(execute: Callable[..., Any]) -> Callable[..., Any]:
    def execute_code(self: Any, invocation_context: Any, code_execution_input: Any) -> Any:
        now = active()
        if now is None or not now.place.is_near:
            return execute(self, invocation_context, code_execution_input)
        with now.place.entered():
            return as_thread_step(
                f"{invocation_context.agent.name}.code",
                lambda: execute(self, invocation_context, code_execution_input),
                shown=code_execution_input.code,
                retry=now.options.policy.for_tool("code"),
                returns=CodeExecutionResult,
            )

    return execute_code
