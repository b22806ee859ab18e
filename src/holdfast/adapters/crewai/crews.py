"""Crews as steps: the whole of a kickoff is one, and what its agents call are steps inside.

A crew is CrewAI's own all the way: its loop, threads, callbacks and guardrails run again when its
step is entered anew, and find in the journal what was called already. Each kickoff works on copies
of the crew's agents and tasks, so that runs in one process do not get into each other's way; the
crew itself is told of outputs and usage at the end. Inside of runs all kickoffs are CrewAI's sync
one, in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import functools
import itertools
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from crewai import Crew
from crewai.agents.agent_builder.utilities.base_token_process import TokenProcess
from crewai.agents.cache.cache_handler import CacheHandler
from crewai.agents.tools_handler import ToolsHandler
from crewai.core.providers.human_input import set_provider
from crewai.llms.base_llm import BaseLLM
from crewai.tasks.llm_guardrail import LLMGuardrail
from crewai.types.streaming import CrewStreamingOutput, StreamChunk

import holdfast
from holdfast.adapters._relay import Relay
from holdfast.adapters._shared import (
    AGENT_WORKFLOW,
    Place,
    as_thread_step,
    in_own_thread,
    require_name,
)
from holdfast.adapters.crewai import frames, values
from holdfast.adapters.crewai.active import ONCE, SETTINGS, Active, Settings, entered, spend
from holdfast.adapters.crewai.people import Person

_STREAMS = "__holdfast_streams__"


class DurableCrew(Crew):
    """What `durable(crew)` makes of a crew."""

    def kickoff(
        self, inputs: Any = None, input_files: Any = None, from_checkpoint: Any = None
    ) -> Any:
        if holdfast.current_run() is None:
            return super().kickoff(inputs, input_files, from_checkpoint)
        return Kickoff(self, inputs, input_files, from_checkpoint).in_this_thread()

    async def kickoff_async(
        self, inputs: Any = None, input_files: Any = None, from_checkpoint: Any = None
    ) -> Any:
        if holdfast.current_run() is None:
            return await super().kickoff_async(inputs, input_files, from_checkpoint)
        kickoff = Kickoff(self, inputs, input_files, from_checkpoint)
        return kickoff.streamed() if self.stream else await kickoff.awaited()

    async def akickoff(
        self, inputs: Any = None, input_files: Any = None, from_checkpoint: Any = None
    ) -> Any:
        if holdfast.current_run() is None:
            return await super().akickoff(inputs, input_files, from_checkpoint)
        return await self.kickoff_async(inputs, input_files, from_checkpoint)

    async def kickoff_for_each_async(self, *args: Any, **kwargs: Any) -> Any:
        with self._at_once():
            return await super().kickoff_for_each_async(*args, **kwargs)

    async def akickoff_for_each(self, *args: Any, **kwargs: Any) -> Any:
        with self._at_once():
            return await super().akickoff_for_each(*args, **kwargs)

    @contextlib.contextmanager
    def _at_once(self) -> Iterator[None]:
        """CrewAI makes tasks for several kickoffs, which are not to be in their keys."""
        if holdfast.current_run() is None:
            yield
            return
        if self.stream:
            raise holdfast.Unsupported(
                "a stream of several kickoffs at once inside of a run: their pieces would come in "
                "another order on replay. Make a task of each `kickoff_async`, or set stream=False"
            )
        token = _several.set(Place())
        try:
            yield
        finally:
            _several.reset(token)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        _refuse("train")
        return super().train(*args, **kwargs)

    def test(self, *args: Any, **kwargs: Any) -> Any:
        _refuse("test")
        return super().test(*args, **kwargs)

    def replay(self, *args: Any, **kwargs: Any) -> Any:
        _refuse("replay")
        return super().replay(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == AGENT_WORKFLOW:
            require_name(self, None)  # where it would be started: it says how to name it
        found: Any = super()
        return found.__getattr__(name)

    def copy(self) -> Any:  # type: ignore[override]
        """For `kickoff_for_each`, which works on copies."""
        if holdfast.current_run() is None:
            return durable_crew(super().copy(), settings_of(self))
        return durable_crew(working_copy(self, uuid.uuid4), settings_of(self))


def _refuse(what: str) -> None:
    if holdfast.current_run() is not None:
        raise holdfast.Unsupported(
            f"crew.{what}() inside of a run: call it outside of runs; a run is replayed by itself, "
            "and `holdfast rerun` and `holdfast fork` make others of it"
        )


_several: contextvars.ContextVar[Place | None] = contextvars.ContextVar(
    "holdfast.crewai.several", default=None
)


def durable_crew(crew: Any, settings: Settings) -> Any:
    kind: Any = type(crew)
    object.__setattr__(crew, "__class__", _kind(DurableCrew, kind))
    object.__setattr__(crew, SETTINGS, settings)
    values.know(kind for task in crew.tasks if (kind := values.class_of(task)) is not None)
    return crew


def settings_of(crew: Any) -> Settings:
    found: Settings = crew.__dict__[SETTINGS]
    return found


class WorkingCrew(Crew):
    """A copy of a durable crew, for one kickoff."""

    def kickoff(
        self, inputs: Any = None, input_files: Any = None, from_checkpoint: Any = None
    ) -> Any:
        try:
            return super().kickoff(inputs, input_files, from_checkpoint)
        except Exception:
            raise
        except BaseException as gone:
            if not self.__dict__[_STREAMS]:
                raise
            raise Gone from gone


class Gone(Exception):
    """The run leaves. A crew that streams is in a thread which knows of plain errors only."""


@functools.cache
def _kind(first: Any, kind: Any) -> Any:
    own = next(k for k in kind.__mro__ if not issubclass(k, DurableCrew | WorkingCrew))
    return type(own.__name__, (first, own), {"__module__": own.__module__})


class Kickoff:
    """One kickoff in a run."""

    def __init__(
        self, crew: Any, inputs: Any, input_files: Any = None, from_checkpoint: Any = None
    ) -> None:
        if from_checkpoint is not None:
            raise holdfast.Unsupported(
                "from_checkpoint= inside of a run: the journal says where the crew is; kick it off "
                "without"
            )
        self._crew, self._inputs, self._files = crew, inputs, input_files
        self.settings = settings_of(crew)
        self._relay: Relay[StreamChunk] | None = None
        self._executed = False
        self._name: str = crew.name or "crew"
        self._options: dict[str, Any] = {
            "shown": {"inputs": values.plain(inputs)},
            "retry": ONCE,
            "returns": values.known(),
        }

    def in_this_thread(self) -> Any:
        kept = as_thread_step(self._name, self._work, **self._options)
        output = self._told(kept)
        if not self._crew.stream:
            return output
        streaming = CrewStreamingOutput(sync_iterator=map(_chunk, _chunks_in(kept)))
        streaming._set_result(output)
        return streaming

    async def awaited(self) -> Any:
        return self._told(await self._step())

    def streamed(self) -> CrewStreamingOutput:
        streaming = CrewStreamingOutput(async_iterator=self._stream(lambda: streaming))
        return streaming

    async def _stream(
        self, streaming: Callable[[], CrewStreamingOutput]
    ) -> AsyncGenerator[StreamChunk, None]:
        self._relay = Relay()
        calling = self._step()
        reading = self._relay.read(calling, _chunks_in, made=_chunk)
        async with contextlib.aclosing(reading) as pieces:
            async for piece in pieces:
                yield piece
        streaming()._set_result(self._told(await calling))

    def _step(self) -> asyncio.Future[dict[str, Any]]:
        around = _several.get()
        with around.entered() if around is not None else contextlib.nullcontext():
            return in_own_thread(self._name, self._work, **self._options)

    def _work(self) -> dict[str, Any]:
        """In the step."""
        self._executed = True
        crew = working_copy(self._crew, _ids())
        set_provider(Person(self.settings))
        chunks: list[Any] = []
        with entered(Active(self.settings)), frames.heard() as heard:
            output: Any = crew.kickoff(self._inputs, self._files)
            if isinstance(output, CrewStreamingOutput):
                output = self._read(output, chunks)
        made = [task.output for task in crew.tasks]
        tasks = [
            next((n for n, one in enumerate(made) if one is it), -1) for it in output.tasks_output
        ]
        kept = {"output": output, "tasks": tasks, **frames.kept_with(heard)}
        return {**kept, "chunks": chunks} if chunks else kept

    def _read(self, streaming: CrewStreamingOutput, chunks: list[Any]) -> Any:
        try:
            for chunk in streaming:
                chunks.append(values.plain(chunk))
                if self._relay is not None:
                    self._relay.put(chunk, chunks[-1])
        except Gone as gone:
            assert gone.__cause__ is not None
            raise gone.__cause__ from None
        return streaming.result

    def _told(self, kept: dict[str, Any]) -> Any:
        """The crew's output, of which its tasks are told, too."""
        output = kept["output"]
        for n, made in zip(kept["tasks"], output.tasks_output, strict=True):
            if n >= 0:
                self._crew.tasks[n].output = made
        self._crew.usage_metrics = output.token_usage
        if not self._executed:
            spend(output.token_usage, missed=True)
            frames.again(kept)
        return output


def _chunks_in(kept: dict[str, Any]) -> list[Any]:
    return list(kept.get("chunks", ()))


def _chunk(kept: dict[str, Any]) -> StreamChunk:
    return StreamChunk(**kept)


def _ids() -> Callable[[], uuid.UUID]:
    """The same on every replay: they are in the pieces of a stream."""
    key, count = uuid.UUID(holdfast.idempotency_key()), itertools.count()
    return lambda: uuid.uuid5(key, str(next(count)))


class NoStorage:
    """CrewAI keeps the outputs of the last kickoff's tasks in a file, for `crewai replay`; the
    journal has them."""

    def update(self, *args: Any, **kwargs: Any) -> None: ...

    def reset(self) -> None: ...


def working_copy(crew: Any, new_id: Callable[[], uuid.UUID]) -> Any:
    """Of a crew, for one kickoff: with agents, tasks and counts of its own."""
    copied = functools.partial(_copied, new_id)
    made = copied(crew)
    kind: Any = type(crew)
    object.__setattr__(made, "__class__", _kind(WorkingCrew, kind))
    made.__dict__[_STREAMS] = crew.stream
    cache = CacheHandler()
    agents = {id(one): one for one in crew.agents}
    agents |= {id(task.agent): task.agent for task in crew.tasks if task.agent is not None}
    fresh = {key: fresh_agent(copied(agent), cache) for key, agent in agents.items()}
    llms = {id(agent.llm): fresh[key].llm for key, agent in agents.items()}
    tasks = {id(task): _fresh_task(copied(task), fresh, llms) for task in crew.tasks}
    for task in tasks.values():
        if isinstance(task.context, list):
            task.__dict__["context"] = [tasks.get(id(one), one) for one in task.context]
    made.__dict__["agents"] = [fresh[id(one)] for one in crew.agents]
    made.__dict__["tasks"] = [tasks[id(one)] for one in crew.tasks]
    if crew.manager_agent is not None:
        made.__dict__["manager_agent"] = fresh_agent(copied(crew.manager_agent), cache)
    if isinstance(crew.manager_llm, BaseLLM):
        made.__dict__["manager_llm"] = _fresh_llm(crew.manager_llm)
    if crew.tracing is None:
        made.__dict__["tracing"] = False  # it would ask in the terminal
    made._cache_handler = cache
    made._task_output_handler = NoStorage()
    return made


def _copied(new_id: Callable[[], uuid.UUID], model: Any) -> Any:
    made = model.model_copy()
    made.__dict__["id"] = new_id()
    return made


def fresh_agent(made: Any, cache: CacheHandler) -> Any:
    fields = made.__dict__
    fields["agent_executor"] = None
    handler = made.tools_handler
    is_cached = handler is not None and handler.cache is not None
    fields["tools_handler"] = ToolsHandler(cache=cache if is_cached else None)
    fields["llm"] = _fresh_llm(made.llm)
    fields["tools"] = [_fresh_tool(tool) for tool in made.tools or ()]
    made._token_process = TokenProcess()
    if hasattr(made, "_times_executed"):
        made._times_executed = 0
    return made


def _fresh_task(made: Any, agents: dict[int, Any], llms: dict[int, Any]) -> Any:
    fields = made.__dict__
    fields["agent"] = agents.get(id(made.agent))
    fields["output"] = None
    fields["processed_by_agents"] = set()
    fields["tools"] = [_fresh_tool(tool) for tool in made.tools or ()]
    made._guardrail_retry_counts = {}
    made._guardrail = _fresh_guardrail(made._guardrail, llms)
    made._guardrails = [_fresh_guardrail(one, llms) for one in made._guardrails or ()]
    return made


def _fresh_guardrail(guardrail: Any, llms: dict[int, Any]) -> Any:
    """One that asks a model asks its agent's, so that what it uses is counted."""
    if not isinstance(guardrail, LLMGuardrail):
        return guardrail
    made = copy.copy(guardrail)
    made.llm = llms.get(id(guardrail.llm), guardrail.llm)
    return made


def _fresh_llm(llm: Any) -> Any:
    if not isinstance(llm, BaseLLM):
        return llm
    made = copy.copy(llm)
    made._token_usage = dict.fromkeys(llm._token_usage, 0)
    return made


def _fresh_tool(tool: Any) -> Any:
    """Uses are limited per run: another process knows of none."""
    if getattr(tool, "max_usage_count", None) is None:
        return tool
    return tool.model_copy(update={"current_usage_count": 0})


HOOKS = {
    "Crew.kickoff": getattr(Crew, "kickoff", None),
    "Crew.kickoff_async": getattr(Crew, "kickoff_async", None),
    "Crew.akickoff": getattr(Crew, "akickoff", None),
}
