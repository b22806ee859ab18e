"""What CrewAI puts into prompts that would be another on replay: names of files, and dates.

A prompt is compared with the recorded one: a model that was given another would be asked again.
"""

from __future__ import annotations

import contextvars
import functools
import hashlib
from collections.abc import Callable
from typing import Any

import crewai.utilities.tool_result_artifacts as artifacts
from crewai.utilities.prompts import Prompts
from crewai.utilities.tool_result_artifacts import ToolResultArtifactStore

from holdfast.adapters.crewai.active import active, call

_MARK = "__holdfast_prompts__"

_token: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "holdfast.crewai.artifact", default=None
)


def install() -> None:
    if hasattr(ToolResultArtifactStore.store, _MARK):
        return
    ToolResultArtifactStore.store = _store(  # type: ignore[method-assign]
        ToolResultArtifactStore.store
    )
    module: Any = artifacts
    module.token_urlsafe = _named(artifacts.token_urlsafe)
    Prompts._build_date_block = _dated(Prompts._build_date_block)  # type: ignore[method-assign]


def _store(original: Callable[..., Any]) -> Callable[..., Any]:
    """A tool's result that is too long for the model is put into a file, made anew on replay, which
    the model is told the name of. It is made of what is in it."""

    @functools.wraps(original)
    def store(self: ToolResultArtifactStore, content: str, *args: Any, **named: Any) -> Any:
        if active() is None:
            return original(self, content, *args, **named)
        digest = hashlib.blake2b(content.encode("utf-8", "replace"), digest_size=16).hexdigest()
        again = sum(digest in one for one in self._artifact_ids)
        token = _token.set(f"{digest}-{again}" if again else digest)
        try:
            return original(self, content, *args, **named)
        finally:
            _token.reset(token)

    setattr(store, _MARK, True)
    return store


def _named(original: Callable[..., str]) -> Callable[..., str]:
    def token_urlsafe(nbytes: int | None = None) -> str:
        return _token.get() or original(nbytes)

    return token_urlsafe


def _dated(original: Callable[..., str]) -> Callable[..., str]:
    """`Agent(inject_date=True)`: the crew lives in one day, however long it takes."""

    @functools.wraps(original)
    def date_block(self: Prompts) -> str:
        found = active()
        if found is None or not getattr(self.agent, "inject_date", False):
            return original(self)
        block: str = call(found, "date", lambda: original(self))
        return block

    return date_block


HOOKS = {
    "ToolResultArtifactStore.store": getattr(ToolResultArtifactStore, "store", None),
    "tool_result_artifacts.token_urlsafe": getattr(artifacts, "token_urlsafe", None),
    "Prompts._build_date_block": getattr(Prompts, "_build_date_block", None),
}
