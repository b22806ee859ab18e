"""Child runs: runs of their own, awaited by the one that started them, or going their own way."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, ParamSpec, TypeVar

from holdfast import codec
from holdfast.engine.context import Scope, scope
from holdfast.engine.step import step
from holdfast.engine.thread import portal
from holdfast.engine.value import uuid4
from holdfast.engine.wait import Waitable, blocks_here, external, on_loop, required_scope
from holdfast.engine.workflow import RunOptions, Workflow, new_run, refuse_if_reused
from holdfast.errors import IdReused, RunCancelled, RunFailed
from holdfast.types import Entry, Kind, RunId

P = ParamSpec("P")
R = TypeVar("R")


class Child(Waitable[R]):
    """A run of its own, started by this one and awaited by it."""

    def __init__(self, where: Scope, workflow: Workflow[Any, R], args: Any, kwargs: Any) -> None:
        run = where.frame.run
        self._workflow = workflow
        self._claim = where.claim(f"child:{workflow.name}")
        self._input = workflow.encode_input(args, kwargs)
        self.id = workflow.options.id or f"{run.row.id}{self._claim.key}"
        if not workflow.options.id and run.row.generation > 1:
            self.id = f"{run.row.id}~{run.row.generation}{self._claim.key}"

    async def _wait(self) -> R:
        run = self._claim.scope.frame.run

        async def start() -> None:
            await run.may_start(self._claim.scope.frame)
            options = self._workflow.options.updated(id=self.id)
            new = new_run(self._workflow.name, self._input, run.host.clock, options)
            new.parent, new.parent_step = run.row.key, self._claim.key
            new.session = new.session or run.row.session
            if new.on_busy == "join":
                new.on_busy = "enqueue"  # it is awaited, so it has to be a run of its own
            started = await run.host.start(new)
            refuse_if_reused(started.row, new)
            if (started.row.parent, started.row.parent_step) != (run.row.key, self._claim.key):
                raise IdReused(
                    f"run {self.id!r} exists already and is no child of run {run.row.id!r}, which "
                    "would never hear of its end; give the child an id of its own"
                )

        value: R = await external(
            self._claim,
            Kind.CHILD,
            self._decode,
            label=f"the child run {self.id!r}",
            mail_name=self._claim.key,
            before=start,
        )
        return value

    def _decode(self, entry: Entry) -> R:
        if not entry.failed:
            value: R = self._workflow.decode_result(entry.output, self.id)
            return value
        if entry.output is None:
            raise cancelled(self.id)
        error = codec.decode_error(entry.output)
        raise RunFailed(f"the child run {self.id!r} failed: {error}") from error


def cancelled(id: RunId) -> RunCancelled:
    """What a parent gets whose child was cancelled."""
    return RunCancelled(f"the child run {id!r} was cancelled")


def child(workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Child[R]:
    """Starts a run of another workflow and waits for its result; its death is not this run's."""
    where = required_scope("child()")
    return on_loop(where, lambda: Child(where, workflow, args, kwargs))


@step(name="start")
async def _start(id: str, workflow: str, payload: bytes, options: dict[str, Any]) -> str:
    where = scope()
    assert where is not None
    host = where.frame.run.host
    new = new_run(workflow, payload, host.clock, RunOptions(id=id, **options))
    started = await host.start(new)
    if started.joined:
        return started.row.id
    refuse_if_reused(started.row, new)
    return id


def start(
    workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> Coroutine[Any, Any, str]:
    """Starts a run that goes its own way, and gives its id; started once, whatever dies.

    In a `def` workflow it blocks and returns the id.
    """
    where = required_scope("start()")
    payload = workflow.encode_input(args, kwargs)

    async def begin(_: object = None) -> str:
        id = workflow.options.id or str(uuid4())
        return await _start(id, workflow.name, payload, workflow.options.given())

    if not blocks_here(where):
        return begin()
    started: Coroutine[Any, Any, str] = portal(where, begin)
    return started
