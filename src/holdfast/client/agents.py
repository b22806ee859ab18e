"""How agents of frameworks look to a type checker: nothing of theirs is imported here.

A workflow has none of these methods, so that its arguments stay checked exactly.
"""

from __future__ import annotations

from typing import Any, Protocol


class _Runs(Protocol):  # pydantic-ai, Microsoft Agent Framework
    @property
    def run(self) -> Any: ...


class _RunsAsync(Protocol):  # Google ADK
    @property
    def run_async(self) -> Any: ...


class _Invokes(Protocol):  # LangGraph, LangChain
    @property
    def ainvoke(self) -> Any: ...


class _InvokesAsync(Protocol):  # Strands
    @property
    def invoke_async(self) -> Any: ...


class _HandsOff(Protocol):  # OpenAI Agents SDK
    @property
    def handoffs(self) -> Any: ...


class _KicksOff(Protocol):  # CrewAI
    @property
    def kickoff(self) -> Any: ...


Agent = _Runs | _RunsAsync | _Invokes | _InvokesAsync | _HandsOff | _KicksOff
