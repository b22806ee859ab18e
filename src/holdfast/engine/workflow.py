"""Workflows: durable functions with a stable name, listed with the app that serves them."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    get_args,
    overload,
)

from holdfast import codec
from holdfast.clock import Clock, to_micros
from holdfast.engine.context import named
from holdfast.engine.journal import ARGUMENTS
from holdfast.engine.signature import Signature
from holdfast.engine.thread import sync_body
from holdfast.errors import BadArguments, HoldfastError, IdReused, UnknownWorkflow
from holdfast.records import FrozenRecord
from holdfast.text import A_NAME, can_be_a_name, fresh_id
from holdfast.types import Kind, NewRun, OnBusy, RunRow, WhileWaiting

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution

P = ParamSpec("P")
R = TypeVar("R")

Durability = Literal["full", "none"]

AGENT_WORKFLOW = "__holdfast_workflow__"
"""Where an agent that was made durable keeps the workflow that runs it."""

_DURATION_MAX = timedelta(days=365_000)
_CHOICES: dict[str, tuple[str, ...]] = {
    "on_busy": get_args(OnBusy),
    "while_waiting": get_args(WhileWaiting),
    "durability": get_args(Durability),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RunOptions(FrozenRecord):
    """How a run is started; every field has a default that is right for most."""

    id: str | None = None  # start is idempotent by it; None: a fresh one
    session: str | None = None
    on_busy: OnBusy = "enqueue"
    while_waiting: WhileWaiting = "hold"
    deadline: timedelta | None = None
    delay: timedelta | None = None
    priority: int = 0
    queue: str = "default"
    fairness_key: str | None = None  # keys share their queue evenly
    durability: Durability = "full"

    def __post_init__(self) -> None:
        for name in ("deadline", "delay"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, timedelta):
                raise BadArguments(f"{name} is a timedelta, not {given!r}")
            if given is not None and not timedelta(0) <= given <= _DURATION_MAX:
                raise BadArguments(f"{name} must be between nothing and 1,000 years, not {given}")
        for name in ("id", "session", "queue", "fairness_key"):
            text = getattr(self, name)
            if text is not None and not (can_be_a_name(text) and text):
                raise BadArguments(f"{name} is {A_NAME}, not {text!r}")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                listed = ", ".join(repr(choice) for choice in choices)
                raise BadArguments(f"{name} is one of {listed}, not {getattr(self, name)!r}")
        if not isinstance(self.priority, int) or abs(self.priority) >= 2**31:
            raise BadArguments(f"priority is a whole number below 2**31, not {self.priority!r}")
        if self.durability == "none" and self.session is not None:
            raise BadArguments(
                f"a run with durability='none' has no session, as it keeps nothing: leave out "
                f"session={self.session!r}, or let the run have a journal"
            )

    def given(self) -> dict[str, Any]:
        """The options that are not the defaults."""
        default = RunOptions()
        found = {name: getattr(self, name) for name in self.__slots__ if name != "id"}
        return {k: v for k, v in found.items() if v != getattr(default, k)}

    def updated(self, **changes: Any) -> RunOptions:
        unknown = ", ".join(sorted(set(changes) - set(self.__slots__)))
        if unknown:
            raise BadArguments(
                f"no such run option: {unknown}; there are {', '.join(self.__slots__)}"
            )
        return replace(self, **changes)


class Workflow(Generic[P, R]):
    """A durable function. Called directly it is the plain function, outside and inside of runs."""

    def __init__(
        self, fn: Callable[..., Any], *, name: str | None = None, is_remote: bool = False
    ) -> None:
        if not inspect.isfunction(fn):
            raise TypeError(f"@holdfast.workflow is for functions, not for {fn!r}")
        self.fn = fn
        self.name = named("workflow", name or fn.__name__)
        self.options = RunOptions()
        self.is_async = inspect.iscoroutinefunction(fn)
        self._shape = Signature(fn)  # shared by what with_options() makes of it
        self.is_remote = is_remote  # another codebase serves it: this is only its signature
        functools.update_wrapper(self, fn)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"

    def with_options(self, **options: Any) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.options = self.options.updated(**options)
        return other

    # In and out

    def check(self) -> None:
        """Says once what in the code will not replay."""
        if not self._shape.checked:
            # Who recovers runs starts none, and does not need to parse source text.
            from holdfast.engine.lint import warn_of_undurable_reads

            self._shape.checked = True
            warn_of_undurable_reads(self.fn)

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The arguments as they are journaled; BadArguments if they do not fit the signature."""
        what = f"the arguments of workflow {self.name!r}"
        try:
            given = self._shape.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise BadArguments(f"{what}: {error}") from None
        # Plain data is sent as it was given: the same request must have the same digest, and a
        # class may make something else of it each time.
        self._shape.fitted(given, what)
        return codec.encode(dict(given), annotation=self._shape.table, what=what)

    def decode_input(self, data: bytes) -> dict[str, Any]:
        what = f"the arguments of workflow {self.name!r}"
        given: dict[str, Any] = codec.decode(data, self._shape.table, what=what)
        return given

    def digest(self, payload: bytes) -> bytes:
        """Of the arguments that are not the defaults: a call that spells a default out, and one
        that leaves it out, have the same."""
        defaults = self._shape.defaults
        if not any(f'"{name}":'.encode() in payload for name in defaults):
            return codec.digest(payload)
        given = json.loads(payload)
        rest = {n: v for n, v in given.items() if n not in defaults or json.dumps(v) != defaults[n]}
        return codec.digest(payload if len(rest) == len(given) else _compact(rest))

    def means_the_same(self, one: bytes, other: bytes) -> bool:
        """Are these the same arguments to this code, one with a default spelled out that the other
        leaves out?"""
        what, shape = f"the arguments of workflow {self.name!r}", self._shape
        try:
            given = [codec.decode(data, shape.table, what=what) for data in (one, other)]
            for name in given[0].keys() | given[1].keys():
                default = shape.signature.parameters[name].default
                annotation = shape.hints[0].get(name, Any)
                values = [arguments.get(name, default) for arguments in given]
                sent = [codec.encode(v, annotation=annotation, what=what) for v in values]
                if sent[0] != sent[1]:
                    return False
        except (HoldfastError, KeyError):  # an input of other code, a default that cannot be sent
            return False
        return True

    def encode_result(self, value: Any, run_id: str) -> bytes:
        return codec.encode(
            value,
            annotation=self._shape.hints[1],
            what=f"the result of run {run_id!r} ({self.name})",
        )

    def decode_result(self, data: bytes | None, run_id: str) -> Any:
        what = f"the result of run {run_id!r} ({self.name})"
        return codec.decode(data or b"null", self._shape.hints[1], what=what)

    # Execution

    def _arguments(self, run: Execution) -> inspect.BoundArguments:
        """What the run was started with, by this signature.

        Plain data is converted when the run first begins, and what it became is journaled. Whoever
        started it may have known another signature, or none: a stub in another codebase.
        """
        journal, what = run.journal, f"the arguments of workflow {self.name!r}"
        given = self.decode_input(journal.arguments or run.row.input)
        if journal.arguments is None and journal.is_fresh:
            fitted = self._shape.fitted(given, what)
            if fitted is not None:
                journal.arguments = codec.encode(fitted, annotation=self._shape.table, what=what)
                run.note(Kind.VALUE, ARGUMENTS, output=journal.arguments)
                given = self.decode_input(journal.arguments)
        bound = inspect.BoundArguments(self._shape.signature, given)
        bound.apply_defaults()
        return bound

    def body(self, run: Execution) -> Coroutine[Any, Any, Any]:
        if self.is_remote:
            raise UnknownWorkflow(f"workflow {self.name!r} is a stub of one served elsewhere")
        bound = self._arguments(run)
        if self.is_async:
            coro: Coroutine[Any, Any, Any] = self.fn(*bound.args, **bound.kwargs)
            return coro
        return sync_body(run, functools.partial(self.fn, *bound.args, **bound.kwargs))


class AsyncWorkflow(Workflow[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        coro: Coroutine[Any, Any, R] = self.fn(*args, **kwargs)
        return coro


class SyncWorkflow(Workflow[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.fn(*args, **kwargs)
        return result


@overload
def workflow(  # type: ignore[overload-overlap]
    fn: Callable[P, Coroutine[Any, Any, R]], /
) -> AsyncWorkflow[P, R]: ...
@overload
def workflow(fn: Callable[P, R], /) -> SyncWorkflow[P, R]: ...
@overload
def workflow(*, name: str | None = None, **options: Any) -> _Decorate: ...
def workflow(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Makes a function a workflow.

    name: its stable name, if not the function's own; keep it when you rename the function.
    Other options are defaults for its runs, as with `with_options`.
    """
    if fn is None:
        return _Decorate(options)
    return _make(fn, {})


class _Decorate:
    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncWorkflow[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncWorkflow[P, R]: ...
    def __call__(self, fn: Callable[..., Any], /) -> Any:
        return _make(fn, self._options)


def _make(fn: Callable[..., Any], options: dict[str, Any]) -> Workflow[Any, Any]:
    options = dict(options)
    name = options.pop("name", None)
    is_remote = options.pop("is_remote", False)
    kind = AsyncWorkflow if inspect.iscoroutinefunction(fn) else SyncWorkflow
    made: Workflow[Any, Any] = kind(fn, name=name, is_remote=is_remote)
    return made.with_options(**options) if options else made


def remote(name: str) -> _Decorate:
    """A workflow that another codebase serves, known here by its name and a stub's signature:

    @holdfast.remote("billing.charge")
    async def charge(customer: str, cents: int) -> str: ...
    """
    return _Decorate({"name": name, "is_remote": True})


def new_run(
    workflow: str, payload: bytes, clock: Clock, options: RunOptions, digest: bytes | None = None
) -> NewRun:
    """The row of a run that is to be started."""
    now = clock.now()
    return NewRun(
        id=options.id or fresh_id(),
        workflow=workflow,
        input=payload,
        digest=digest or codec.digest(payload),
        created_at=now,
        incarnation=fresh_id(),
        queue=options.queue,
        priority=options.priority,
        fairness_key=options.fairness_key or "",
        ready_at=now + (to_micros(options.delay) if options.delay else 0),
        deadline_at=None if options.deadline is None else now + to_micros(options.deadline),
        session=options.session,
        on_busy=options.on_busy,
        while_waiting=options.while_waiting,
    )


def _compact(tree: dict[str, Any]) -> bytes:
    """As the codec would write it."""
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def refuse_if_reused(row: RunRow, new: NewRun, workflow: Workflow[Any, Any]) -> None:
    """The same id with the same arguments is the same run; with others it is a mistake."""
    if row.generation == 1:
        same = row.input == new.input or workflow.means_the_same(row.input, new.input)
    else:  # its input is not the one that it was started with any more
        same = row.digest in (new.digest, codec.digest(new.input))
    if not same or row.workflow != new.workflow:
        raise IdReused(
            f"run {row.id!r} exists already, started as {row.workflow!r} with other arguments; "
            "use another id, or the same arguments to get that run"
        )


def workflow_of(found: object) -> Workflow[Any, Any] | None:
    """A workflow itself, or that of a durable agent: see holdfast.adapters."""
    workflow = found if isinstance(found, Workflow) else getattr(found, AGENT_WORKFLOW, None)
    return workflow if isinstance(workflow, Workflow) else None


def require(found: object) -> Workflow[Any, Any]:
    workflow = workflow_of(found)
    if workflow is None:
        raise HoldfastError(
            f"{found!r} is not a workflow: decorate it with @holdfast.workflow; an agent of a "
            "framework becomes one by `durable(agent)` of that framework's holdfast.adapters, if "
            "it has a name or is given one: `durable(agent, name=...)`"
        )
    return workflow
