"""Functions of LangGraph's functional API: each call of a `@task` is a step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import langgraph.func
from langchain_core.runnables.config import var_child_runnable_config
from langgraph._internal._runnable import is_async_callable

import holdfast
from holdfast.adapters import _langgraph_streams as streams
from holdfast.adapters._langgraph_active import Active, active, call, call_in_thread, inside
from holdfast.adapters._langgraph_interrupts import answered, answered_in_thread, ask_caller
from holdfast.adapters._shared import Place

_ONCE = holdfast.Retry(attempts=1)


def install() -> None:
    kind: Any = langgraph.func._TaskFunction
    if not hasattr(kind.__call__, "__wrapped__"):
        kind.__call__ = _calling(kind.__call__)


def _calling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def calling(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = active()
        if found is None:
            return original(self, *args, **kwargs)
        make = _stepped if is_async_callable(self.func) else _stepped_in_thread
        # Who has told LangGraph when to try a task again is taken at their word.
        retry = _ONCE if self.retry_policy else found.settings.policy.retry
        return langgraph.func._call_with_options(
            make(self.func, found, retry),
            args,
            kwargs,
            retry_policy=self.retry_policy,
            cache_policy=self.cache_policy,
            timeout=self.timeout,
        )

    return calling


class TaskCall:
    """One call of a task; what it streams is a part of what its node does."""

    def __init__(self, found: Active, name: str) -> None:
        config, outer = var_child_runnable_config.get(), streams.now.get()
        self.streamed = streams.Streamed(config, outer) if config and outer is not None else None
        self.config = self.streamed.config if self.streamed is not None else None
        self.path = "/".join((*found.path, name))
        self._ran = False

    def returns(self, value: Any) -> Any:
        """In the step."""
        self._ran = True
        return streams.returned(self.streamed, value)

    def shown(self, value: Any) -> Any:
        return streams.shown(self.streamed, self._ran, value)


def _stepped(func: Callable[..., Any], found: Active, retry: holdfast.Retry | None) -> Any:
    name = getattr(func, "__name__", type(func).__name__)
    place = Place(name)  # now: of those that run at once, any may be the first

    @functools.wraps(func)
    async def stepped(*args: Any, **kwargs: Any) -> Any:
        one = TaskCall(found, name)

        async def once(config: Any) -> Any:
            return await func(*args, **kwargs)

        async def work() -> Any:
            with inside(found):
                return one.returns(await answered(one.path, one.config, once))

        return ask_caller(await call(name, work, retry=retry, place=place, shows=one.shown))

    return stepped


def _stepped_in_thread(
    func: Callable[..., Any], found: Active, retry: holdfast.Retry | None
) -> Any:
    name = getattr(func, "__name__", type(func).__name__)
    place = Place(name)  # now: of those that run at once, any may be the first

    @functools.wraps(func)
    def stepped(*args: Any, **kwargs: Any) -> Any:
        one = TaskCall(found, name)

        def once(config: Any) -> Any:
            return func(*args, **kwargs)

        def work() -> Any:
            with inside(found):
                return one.returns(answered_in_thread(one.path, one.config, once))

        with place.entered():
            return ask_caller(call_in_thread(name, work, retry=retry, shows=one.shown))

    return stepped
