"""What of a run of Pydantic AI's agent is a step, and how it is replayed.

`Durability` is bound to the agent anew for each of its runs. Pydantic AI hands it every request to
a model, every call of a tool and every look at a server's tools as an operation; `Steps` makes a
step of each. Around the model stands `Asked`, which relays streams, asks other models in turn and
handles overflows.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities.abstract import leaf_capabilities
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    JournalCallableOperationBackend,
    ModelRequestId,
    ToolsetCallToolId,
    conversation_id_from_run_id,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import DeferredToolResults, ToolDenied
from pydantic_ai.toolsets import FunctionToolset

import holdfast
from holdfast.adapters._pydantic_ai_mcp import held_by_runs
from holdfast.adapters._pydantic_ai_model import (
    Another,
    Asked,
    OnOverflow,
    instead,
    leave_retries_of,
    relays,
)
from holdfast.adapters._pydantic_ai_state import ToolState
from holdfast.adapters._questions import about_call
from holdfast.adapters._shared import Place, Policy, as_step, find_hooks, is_overflow

_THREADS_MAX = 64
_KINDS_MAX = 1000

_WAIT_FOR_TASKS = (  # of their own: nodes of the agent's graph, and calls of tools
    "pydantic_graph.graph_builder:_GraphIterator.iter_graph",
    "pydantic_ai._tool_execution:_iter_completed_or_buffered",
)
for _waits in filter(None, find_hooks(_WAIT_FOR_TASKS).values()):
    holdfast.waits_within(_waits)

_without_operations: set[tuple[type, ...]] = set()


@dataclass(frozen=True, kw_only=True)
class Options:
    policy: Policy
    models: tuple[Model, ...]
    on_overflow: OnOverflow | None
    approvals: bool


def _not_encodable(error: Exception) -> Exception:
    return holdfast.NotEncodable(
        f"a tool's result cannot be written to the journal: {error}; return text, numbers, lists, "
        "dicts, dataclasses or models of pydantic"
    )


class Durability(BaseDurabilityCapability[Any]):
    engine_spec = DurabilityEngineSpec(
        engine_name="Holdfast",
        durable_unit_noun="step",
        durable_container_noun="run",
        codec=JSON_CODEC,
        serialization_failure=_not_encodable,
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
    )

    def __init__(self, name: str, options: Options) -> None:
        self._place = Place()  # where the agent is run: the framework's own tasks come and go
        self._beginning = Beginning(self._place)
        others = {f"{name}:{n}": Another(model) for n, model in enumerate(options.models, 1)}
        super().__init__(name=name, models=others)
        self._options, self._others = options, tuple(others.values())
        self._steps = Steps(agent_name=name, config=Retries(options.policy))
        self._steps.place = self._place

    @property
    def in_durable_context(self) -> bool:
        return holdfast.current_run() is not None

    def get_durable_operation_backend(self) -> Steps:
        return self._steps

    def _bind_capability_operations(self, agent: Any) -> None:
        # To find out that capabilities have no operations of their own takes longer than a step.
        kinds = tuple(map(type, leaf_capabilities(agent.root_capability)))
        if kinds in _without_operations:
            self._bound_capability_operations = {}
            self._capability_declarations = {}
            return
        super()._bind_capability_operations(agent)
        if not self._capability_declarations and len(_without_operations) < _KINDS_MAX:
            _without_operations.add(kinds)

    def get_default_run_id(self) -> str | None:
        return self._beginning.id

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id)

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        if getattr(handler, "__name__", "") == "_do_run":
            holdfast.waits_within(handler)  # for the agent's run, which is in another task
        # The framework's own threads are hidden from the event loop, and so from the run.
        with AbstractAgent.using_thread_executor(_threads()), self._place.entered():
            return await handler()

    async def before_run(self, ctx: Any) -> None:
        await super().before_run(ctx)
        _stamp(ctx.messages, ctx.run_id, self._beginning.at)

    async def after_run(self, ctx: Any, *, result: Any) -> Any:
        _stamp(result.all_messages(), ctx.run_id, self._beginning.at)
        return result

    # Requests

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
        async def asked(context: Any) -> Any:
            self._stand_before(context)
            return await handler(context)

        return await super().wrap_model_request(ctx, request_context=request_context, handler=asked)

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        context = await super().before_model_request(ctx, request_context)
        self._stand_before(context)  # another capability may have put another model there
        _stamp(ctx.messages, ctx.run_id, self._beginning.at)
        _stamp(context.messages, ctx.run_id, self._beginning.at)
        return context

    def _stand_before(self, context: Any) -> None:
        model = context.model
        while isinstance(model, WrapperModel):
            if isinstance(model, Asked):
                return
            model = model.wrapped
        context.model = Asked(context.model, self._others, self._options.on_overflow)

    def _model_stream_event_handler(self) -> Any:
        relay = relays.get()
        return relay.hear if relay is not None else None

    async def _resolve_model_for_request(self, model_id: str | None, run_context: Any) -> Model:
        model = instead.get() or await super()._resolve_model_for_request(model_id, run_context)
        leave_retries_of(model)
        return model

    def _find_model_id(self, model: Model) -> str | None:
        try:
            return super()._find_model_id(model)
        except UserError:
            # It came with the run, as an argument or an override; the step is in this process.
            model_id = f"{self.name}:run:{len(self._models_by_id)}"
            self._models_by_id[model_id] = model
            return model_id

    # Tools

    def _wrap_and_register_leaf(self, ts: Any) -> Any:
        if isinstance(ts, FunctionToolset) and ts.id is None:
            return self._wrap_leaf_toolset(ts)  # its calls are known by their own ids
        return held_by_runs(super()._wrap_and_register_leaf(ts))

    def get_wrapper_toolset(self, toolset: Any) -> Any:
        # Those that came with the run, too.
        return toolset.visit_and_replace(self._wrap_and_register_leaf)

    async def handle_deferred_tool_calls(
        self, ctx: Any, *, requests: Any
    ) -> DeferredToolResults | None:
        if not self._options.approvals:
            return None
        with self._place.entered():
            approvals = {
                call.tool_call_id: holdfast.approval(_name(call), _question(call))
                for call in requests.approvals
            }
            calls = {
                call.tool_call_id: holdfast.promise(_name(call), prompt=_question(call))
                for call in requests.calls
            }
        answers = await asyncio.gather(*approvals.values(), *calls.values())
        decisions, results = answers[: len(approvals)], answers[len(approvals) :]
        return DeferredToolResults(
            approvals={
                id: True if one.approved else ToolDenied(one.comment or ToolDenied.message)
                for id, one in zip(approvals, decisions, strict=True)
            },
            calls=dict(zip(calls, results, strict=True)),
        )


def _name(call: Any) -> str:
    return f"{call.tool_name}:{call.tool_call_id}"


def _question(call: Any) -> Any:
    return about_call(call.tool_name, call.args_as_dict())


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="holdfast-pydantic-ai")


class Beginning:
    """Of a run of the agent: its id, if nobody gave it one, and its time. They are read together,
    so that they are one commit. All copies of a capability have the same one."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @functools.cached_property
    def id(self) -> str:
        found, self.at = self._place.claim(lambda: (holdfast.uuid4(), holdfast.now()))
        return str(found)

    @functools.cached_property
    def at(self) -> datetime:
        return self._place.claim(holdfast.now)


class Retries:
    """What the options say, as the framework asks for it."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def base(self, role: str, *, operation_id: object) -> holdfast.Retry | None:
        if role == "model":
            return self._policy.retry
        return self._policy.tools if isinstance(self._policy.tools, holdfast.Retry) else None

    def for_tool(
        self, role: str, *, operation_id: object, tool: object, tool_name: str
    ) -> holdfast.Retry | None:
        return self._policy.for_tool(tool_name)


class Steps(JournalCallableOperationBackend[Any]):
    place: Place

    async def execute(
        self,
        *,
        operation_id: Any,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[Any, ...],
        config: holdfast.Retry | None,
    ) -> object:
        agent = name.partition("__")[0]
        match operation_id:
            case ModelRequestId():
                return await self._model(f"{agent}.model", body, cache_key[1], config)
            case ToolsetCallToolId():
                return await self._tool(agent, body, cache_key, config)
        return await self._step(name, body, retry=config)

    def _step(self, *args: Any, **options: Any) -> Awaitable[Any]:
        return self.place.nearest().claim(lambda: as_step(*args, **options))

    async def _model(
        self,
        name: str,
        body: Callable[[], Awaitable[object]],
        messages: list[ModelMessage],
        retry: holdfast.Retry | None,
    ) -> object:
        relay = relays.get()

        async def work() -> object:
            try:
                value = await body()
                return relay.result(value) if relay is not None else {"value": value}
            except Exception as error:
                if is_overflow(error):
                    raise holdfast.ContextOverflow(str(error)) from error
                raise

        answer: Any = await self._step(name, work, shown=_shown(messages), retry=retry)
        if relay is not None:
            relay.answered = answer["events"]
        return answer["value"]

    async def _tool(
        self,
        agent: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[Any, ...],
        retry: holdfast.Retry | None,
    ) -> object:
        tool, _, ctx, _ = cache_key
        state = ToolState(ctx)

        async def work() -> Any:
            state.begin()
            return {"value": await body(), **state.changes()}

        approved = ":approved" if ctx.tool_call_approved else ""
        name = f"{agent}.{tool}:{ctx.tool_call_id}{approved}"
        try:
            done = await self._step(name, work, shown=_asked_for(ctx), retry=retry)
        finally:
            state.end()
        state.make_again(done)
        return done["value"]


def _stamp(messages: list[ModelMessage], run_id: str | None, at: datetime) -> None:
    """Gives what the agent wrote itself a time that is the same on replay: that of the answer
    before it. Users hand messages to steps of their own."""
    for message in messages:
        if isinstance(message, ModelResponse):
            at = message.timestamp
        elif message.run_id == run_id:
            message.timestamp = at
            for part in message.parts:
                if hasattr(part, "timestamp"):
                    part.timestamp = at


def _shown(messages: list[ModelMessage]) -> Any:
    """The messages without what is different when the run is replayed."""
    shown = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    for message in shown:
        for name in ("timestamp", "run_id", "conversation_id", "instructions", "metadata"):
            message.pop(name, None)
        for part in message["parts"]:
            part.pop("timestamp", None)
            if part["part_kind"] == "system-prompt":
                part.pop("content")  # made anew by the agent's functions
    return shown


def _asked_for(ctx: Any) -> Any:
    """The arguments of a call, as the model wrote them."""
    for message in reversed(ctx.messages):
        if isinstance(message, ModelResponse):
            for part in message.tool_calls:
                if part.tool_call_id == ctx.tool_call_id:
                    return part.args_as_dict()
    return None
