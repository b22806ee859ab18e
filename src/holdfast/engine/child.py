"""Child runs: runs of their own, awaited by the one that started them, or going their own way."""

from __future__ import annotations

import hashlib
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from holdfast import codec
from holdfast.engine.context import Scope, scope
from holdfast.engine.step import step
from holdfast.engine.value import uuid4
from holdfast.engine.wait import Waitable, blocks_here, external, on_loop, required_scope
from holdfast.engine.workflow import RunOptions, Workflow, new_run, refuse_if_reused
from holdfast.errors import (
    BadArguments,
    HoldfastError,
    IdRetired,
    IdReused,
    RunCancelled,
    RunFailed,
    SessionBusy,
    StoreError,
)
from holdfast.types import Entry, Kind, RunId

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution

P = ParamSpec("P")
R = TypeVar("R")

_REFUSALS = (BadArguments, IdReused, IdRetired, SessionBusy)
"""What a store decides; anything else is trouble that may have passed at the next replay."""
_ID_CHARS_MAX = 512  # as for an id that a user gives, see RunOptions
_KEPT_CHARS = 160
"""What is left of an id that is too long: enough to see where it comes from."""


class Child(Waitable[R]):
    """A run of its own, started by this one and awaited by it."""

    def __init__(self, where: Scope, workflow: Workflow[Any, R], args: Any, kwargs: Any) -> None:
        run = where.frame.run
        self._workflow = workflow
        self._claim = where.claim(f"child:{workflow.name}")
        self._input = workflow.encode_input(args, kwargs)
        generation = f"~{run.row.generation}" if run.row.generation > 1 else ""
        self.id = workflow.options.id or _fitting(f"{run.row.id}{generation}{self._claim.key}")

    async def _wait(self) -> R:
        run = self._claim.scope.frame.run

        async def start() -> Entry | None:
            await run.may_start(self._claim.scope.frame)
            try:
                await self._start(run)
            except HoldfastError as error:
                if isinstance(error, _REFUSALS) or type(error) is StoreError:
                    return self._refused(error)
                raise
            return None

        value: R = await external(
            self._claim,
            Kind.CHILD,
            self._decode,
            label=f"the child run {self.id!r}",
            mail_name=self._claim.key,
            before=start,
        )
        return value

    async def _start(self, run: Execution) -> None:
        workflow, clock = self._workflow, run.host.clock
        digest = workflow.digest(self._input)
        new = new_run(workflow.name, self._input, clock, workflow.options, digest)
        new = new._replace(
            id=self.id,
            parent=run.row.key,
            parent_step=self._claim.key,
            session=new.session or run.row.session,
            # It is awaited, so it has to be a run of its own.
            on_busy="enqueue" if new.on_busy == "join" else new.on_busy,
        )
        row = (await run.host.start(new)).row
        refuse_if_reused(row, new, self._workflow)
        if (row.parent, row.parent_step) == (run.row.key, self._claim.key):
            return
        if row.parent != run.row.key:
            raise IdReused(
                f"run {self.id!r} exists already and is no child of run {run.row.id!r}, which "
                "would never hear of its end; give the child an id of its own"
            )
        raise IdReused(
            f"run {self.id!r} is under way and awaited already, at {row.parent_step} of run "
            f"{run.row.id!r}: await that, or give the child an id of its own"
        )

    def _refused(self, error: Exception) -> Entry:
        """There is no child: its start is on record as a step that failed."""
        run, claim = self._claim.scope.frame.run, self._claim
        output = codec.encode_error(error, what=f"the start of the child run {self.id!r}")
        now = run.tick()
        return Entry(
            0,
            Kind.STEP,
            claim.key,
            now,
            position=claim.position,
            attempt=1,
            failed=True,
            output=output,
        )

    def _decode(self, entry: Entry) -> R:
        if entry.kind is Kind.STEP:
            raise codec.decode_error(entry.output or b"")
        if not entry.failed:
            value: R = self._workflow.decode_result(entry.output, self.id)
            return value
        if entry.output is None:
            raise cancelled(self.id)
        error = codec.decode_error(entry.output)
        raise RunFailed(f"the child run {self.id!r} failed: {error}") from error


def _fitting(id: RunId) -> RunId:
    """An id of our own making, which grows with every generation of children, up to a limit."""
    if len(id) <= _ID_CHARS_MAX:
        return id
    return f"{id[:_KEPT_CHARS]}~{hashlib.sha256(id.encode()).hexdigest()[:40]}"


def cancelled(id: RunId) -> RunCancelled:
    """What a parent gets whose child was cancelled."""
    return RunCancelled(f"the child run {id!r} was cancelled")


def child(workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Child[R]:
    """Starts a run of another workflow and waits for its result; its death is not this run's.

    The child is in this run's session, unless it is given another, and shares this run's turn.
    Once it has ended, this run sees what it wrote, and so does the child that is started next.
    Children awaited at once write beside one another: no message is lost, but of two that set the
    same key the later stands. Give children that are to work side by side sessions of their own.
    """
    where = required_scope("child()")
    return on_loop(where, lambda: Child(where, workflow, args, kwargs))


_starting: ContextVar[Workflow[Any, Any]] = ContextVar("holdfast_starting")
"""What is started, for the step that does so: it is no argument that a journal could hold."""


@step(name="start")
async def _start(id: str, workflow: str, payload: bytes, options: dict[str, Any]) -> str:
    where = scope()
    assert where is not None
    host = where.frame.run.host
    digest = _starting.get().digest(payload)
    new = new_run(workflow, payload, host.clock, RunOptions(id=id, **options), digest)
    started = await host.start(new)
    if started.joined:
        return started.row.id
    refuse_if_reused(started.row, new, _starting.get())
    return id


class Starting(Waitable[RunId]):
    def __init__(self, begun: Coroutine[Any, Any, RunId]) -> None:
        self._begun = begun  # made at the call, so that Python tells if it is never awaited

    def _wait(self) -> Coroutine[Any, Any, RunId]:
        return self._begun


def start(workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Starting:
    """Starts a run that goes its own way, and gives its id; started once, whatever dies.

    In a `def` workflow it starts at once, and `result()` is the id.
    """
    where = required_scope("start()")
    payload = workflow.encode_input(args, kwargs)

    async def begin() -> RunId:
        id = workflow.options.id or str(uuid4())
        _starting.set(workflow)
        return await _start(id, workflow.name, payload, workflow.options.given())

    starting = Starting(begin())
    if blocks_here(where):
        starting.result()
    return starting
