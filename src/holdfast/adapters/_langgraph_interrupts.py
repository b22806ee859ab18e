"""`interrupt()` as a durable wait.

What asks somebody waits where it is, inside its step, for a promise: `app.resolve` gives what
`Command(resume=...)` would. Then it is run from its beginning, as LangGraph does it, and
`interrupt()` returns the answer. The graph around it goes on with its other nodes meanwhile.

With `approvals=False` the graph stops at its interrupts and its caller resumes it, as without
Holdfast.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.errors import GraphInterrupt

import holdfast
from holdfast.adapters._langgraph_active import active
from holdfast.adapters._questions import question

_CONF = "configurable"
_SCRATCHPAD = "__pregel_scratchpad"
_ANSWERS_MAX = 1000
_DIGITS = 8
_UNANSWERED = "__holdfast_unanswered__"


class Asking:
    """The questions of one node or tool, and their answers."""

    def __init__(self, name: str, config: Any) -> None:
        self._name = name
        self._config: Any = config if config is not None else var_child_runnable_config.get() or {}
        found = active()
        self._memory = found.memory if found else None
        self._is_own_run = found is not None and found.settings.is_own_run
        self.is_for_caller = found is not None and not found.settings.approvals
        pad = self._pad()
        self._answers: list[Any] = list(pad.resume) if pad is not None else []

    def _pad(self) -> Any:
        return self._config.get(_CONF, {}).get(_SCRATCHPAD)

    def config(self) -> Any:
        """For the next try: it counts its interrupts anew, and finds the answers so far."""
        pad = self._pad()
        if pad is None or self.is_for_caller:
            return self._config
        fresh = dataclasses.replace(
            pad, interrupt_counter=itertools.count().__next__, resume=list(self._answers)
        )
        conf = {**self._config[_CONF], _SCRATCHPAD: fresh}
        return {**self._config, _CONF: conf}

    def question(self, stop: GraphInterrupt) -> Any:
        """The promise for an answer to it."""
        interrupts: Any = stop.args[0] if stop.args else ()
        if len(interrupts) != 1 or len(self._answers) >= _ANSWERS_MAX:
            raise holdfast.Unsupported(
                f"{self._name!r} stopped at {len(interrupts)} interrupts at once: "
                "interrupt_before and interrupt_after of a graph inside a node have no answer; "
                "call interrupt() instead"
            ) from stop
        n = len(self._answers)
        name = self._name if not n else f"{self._name}#{n + 1}"
        if not self._is_own_run:
            name = f"{name}:{holdfast.idempotency_key()[:_DIGITS]}"
        return holdfast.promise(name, prompt=question(interrupts[0].value))

    def answer(self, value: Any) -> None:
        self._answers.append(value)
        if self._memory is not None:
            self._memory.begins_again()


async def answered(name: str, config: Any, once: Callable[[Any], Awaitable[Any]]) -> Any:
    """What `once` returns when everything it asked is answered."""
    asking = Asking(name, config)
    while True:
        given = asking.config()
        with under(given):
            try:
                return await once(given)
            except GraphInterrupt as stop:
                if asking.is_for_caller:
                    return _unanswered(stop)
                question = asking.question(stop)
        asking.answer(await question)


def answered_in_thread(name: str, config: Any, once: Callable[[Any], Any]) -> Any:
    asking = Asking(name, config)
    while True:
        given = asking.config()
        with under(given):
            try:
                return once(given)
            except GraphInterrupt as stop:
                if asking.is_for_caller:
                    return _unanswered(stop)
                question = asking.question(stop)
        asking.answer(question.result())


@contextlib.contextmanager
def under(config: Any) -> Iterator[None]:
    """What runs inside takes this for the config of its node."""
    token = var_child_runnable_config.set(config)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def _unanswered(stop: GraphInterrupt) -> dict[str, Any]:
    """What a step returns that leaves its questions to the caller of the graph."""
    return {_UNANSWERED: list(stop.args[0])}


def ask_caller(result: Any) -> Any:
    if isinstance(result, dict) and _UNANSWERED in result:
        raise GraphInterrupt(tuple(result[_UNANSWERED]))
    return result
