"""Runs of workflows.

The framework's own runner goes from superstep to superstep. Where a workflow would stop with
requests that nobody has answered, the run waits for a promise for each: as soon as one is answered,
what waited for it goes on.
"""

from __future__ import annotations

import asyncio
import collections
import copy
import functools
import uuid
from collections.abc import AsyncIterator, Awaitable
from typing import Any

from agent_framework import (
    AgentResponse,
    Content,
    Message,
    ResponseStream,
    Workflow,
    WorkflowEvent,
    WorkflowExecutor,
    WorkflowRunResult,
)

import holdfast
from holdfast.adapters._active import OPTIONS
from holdfast.adapters._questions import question
from holdfast.adapters._shared import require_name
from holdfast.adapters.agent_framework import values
from holdfast.adapters.agent_framework.active import Active, Options, entered
from holdfast.adapters.agent_framework.agents import approved, executed_elsewhere
from holdfast.adapters.agent_framework.copies import copied
from holdfast.adapters.agent_framework.executors import make_durable

_PRISTINE = "__holdfast_pristine__"
_UNNAMED = "WorkflowBuilder-"
_ROUNDS_MAX = 10_000
_DIGITS = 8


def durable_workflow(workflow: Workflow, options: Options) -> Workflow:
    values.register_types(workflow)
    _require_ids(workflow)
    made = copy.copy(workflow)
    made.__class__ = _durable_kind(type(workflow))  # type: ignore[arg-type]
    made.__dict__[OPTIONS] = options
    made.__dict__[_PRISTINE] = copied(workflow)
    return made


def name_of(workflow: Workflow, name: str | None) -> str:
    own = workflow.name if not workflow.name.startswith(_UNNAMED) else None
    return require_name(workflow, name if name is not None else own)


def _require_ids(workflow: Workflow) -> None:
    for executor in workflow.executors.values():
        if _is_random(executor.id):
            raise holdfast.BadArguments(
                f"the executor {executor.id!r} of {workflow.name!r} would have another id in the "
                "next process, and what it did would not be found: give its agent a name, or the "
                "executor an id that stays"
            )
        if isinstance(executor, WorkflowExecutor):
            _require_ids(executor.workflow)


def _is_random(name: str) -> bool:
    try:
        return bool(uuid.UUID(name.rpartition("_")[2]))
    except ValueError:
        return False


@functools.cache
def _durable_kind(kind: type[Workflow]) -> type[Workflow]:
    def run(self: Any, message: Any = None, *, stream: bool = False, **named: Any) -> Any:
        if holdfast.current_run() is None:
            original: Any = kind.run
            return original(self, message, stream=stream, **named)
        if named.get("checkpoint_id") or named.get("checkpoint_storage"):
            raise holdfast.Unsupported(
                "in a run the journal says where a workflow is: run it without checkpoint_id and "
                "checkpoint_storage"
            )
        turns = Turns(_instance(self), self.__dict__[OPTIONS], stream, named)
        first = {"message": message, "responses": named.pop("responses", None)}
        return turns.streamed(first) if stream else turns.answered(first)

    return type(kind.__name__, (kind,), {"run": run})


def _instance(workflow: Any) -> Workflow:
    """The run's own copy. It goes on from call to call; a step has one for each call."""
    pristine = workflow.__dict__[_PRISTINE]
    if _step() is not None:
        return _fresh(pristine)
    known = holdfast.scratch().setdefault((_PRISTINE, id(workflow)), [])
    if not known:
        known += [_fresh(pristine), workflow]
        _compare(known[0])
    made: Workflow = known[0]
    return made


def _fresh(pristine: Workflow) -> Workflow:
    made = copied(pristine)
    make_durable(made)
    return made


def _step() -> str | None:
    try:
        return holdfast.idempotency_key()
    except holdfast.NotInRun:
        return None


def _compare(workflow: Workflow) -> None:
    """A replay finds what executors did by their ids."""
    found = sorted(workflow.executors)
    known = holdfast.once(lambda: found, name=f"{workflow.name}.executors")
    if missing := sorted(set(known) - set(found)):
        raise holdfast.Diverged(
            f"the workflow {workflow.name!r} was begun with the executors {', '.join(missing)}, "
            f"and now it has {', '.join(found)}: what they did cannot be found. Build it with "
            "the same ids in every process, and new ones only under a new name of the workflow"
        )


class Turns:
    """One call of a workflow: as many runs of it as it needs answers."""

    def __init__(
        self, workflow: Workflow, options: Options, stream: bool, named: dict[str, Any]
    ) -> None:
        self._workflow, self._options, self._named = workflow, options, named
        self._active = Active(options, workflow.name)
        self._waits: dict[str, asyncio.Future[Any]] = {}
        self._step = _step()
        self._asked: collections.Counter[str] = collections.Counter()
        if self._step is None:
            self._asked = holdfast.scratch().setdefault((_PRISTINE, "asked"), self._asked)

    async def answered(self, given: dict[str, Any]) -> WorkflowRunResult:
        results: list[WorkflowRunResult] = []
        for _ in range(_ROUNDS_MAX):
            with entered(self._active):
                results.append(await self._workflow.run(**given, **self._named))
            answers = await self._answers()
            if answers is None:
                break
            given = {"responses": answers}
        return _merged(results)

    def streamed(self, first: dict[str, Any]) -> ResponseStream[Any, WorkflowRunResult]:
        results: list[WorkflowRunResult] = []

        async def events() -> AsyncIterator[WorkflowEvent[Any]]:
            given = first
            for _ in range(_ROUNDS_MAX):
                with entered(self._active):
                    stream = self._workflow.run(**given, stream=True, **self._named)
                stream.with_pull_context_manager(lambda: entered(self._active))
                async with stream:
                    async for event in stream:
                        yield event
                    with entered(self._active):
                        results.append(await stream.get_final_response())
                answers = await self._answers()
                if answers is None:
                    break
                given = {"responses": answers}

        return ResponseStream(events(), finalizer=lambda _: _merged(results))

    # People

    async def _answers(self) -> dict[str, Any] | None:
        """Those that have come; None if nothing is asked, or the caller is to answer."""
        pending = await self._workflow._runner_context.get_pending_request_info_events()
        if not pending or not self._options.approvals:
            return None
        for request_id, event in pending.items():
            if request_id not in self._waits:
                self._waits[request_id] = asyncio.ensure_future(self._answer(event))
        waiting = {self._waits[request_id] for request_id in pending}
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        found = [request_id for request_id in pending if self._waits[request_id] in done]
        return {request_id: self._waits.pop(request_id).result() for request_id in found}

    def _answer(self, event: WorkflowEvent[Any]) -> Awaitable[Any]:
        data = event.data
        if isinstance(data, Content) and data.type == "function_approval_request":
            return approved(data)
        if isinstance(data, Content) and data.type == "function_call":
            return executed_elsewhere(data)
        executor = event.source_executor_id
        self._asked[executor] += 1
        name = f"{executor}:{self._asked[executor]}"
        if self._step is not None:
            name = f"{name}:{self._step[:_DIGITS]}"
        wanted: Any = event.response_type
        promise: Any = holdfast.promise(name, wanted | Any, prompt=question(data))

        async def answer() -> Any:
            return _as_messages(await promise, wanted)

        return answer()


def _as_messages(answer: Any, wanted: Any) -> Any:
    """What somebody says to agents may be plain text."""
    if wanted != list[Message] or not isinstance(answer, str | list):
        return answer
    said = [answer] if isinstance(answer, str) else answer
    return [
        one if isinstance(one, Message)
        else Message.from_dict(one) if isinstance(one, dict)
        else Message("user", [one])
        for one in said
    ]  # fmt: skip


def _merged(results: list[WorkflowRunResult]) -> WorkflowRunResult:
    """As if the workflow had not stopped in between."""
    if len(results) == 1:
        return results[0]
    events = [event for result in results for event in result]
    return WorkflowRunResult(
        events, [one for result in results for one in result.status_timeline()]
    )


# As a run of its own


def outputs_of(result: WorkflowRunResult) -> list[Any]:
    return [_plain(output) for output in result.get_outputs()]


def _plain(output: Any) -> Any:
    """What agents say, as text; structured answers and what is yours as they are."""
    if isinstance(output, AgentResponse):
        return output.value if output.value is not None else output.text
    if isinstance(output, Message):
        return {"role": output.role, "author": output.author_name, "text": output.text}
    if isinstance(output, list):
        return [_plain(item) for item in output]
    return output
