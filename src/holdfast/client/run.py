"""A handle on a run: its id, and what can be asked of it. It holds nothing open."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast import codec
from holdfast.engine.workflow import Workflow
from holdfast.errors import NoJournal, RunCancelled, RunFailed, RunHalted
from holdfast.types import HALTED, Entry, RunRow, Status

if TYPE_CHECKING:
    from holdfast.client.app import Holdfast

R = TypeVar("R")


class Run(Generic[R]):
    """A handle on a run."""

    def __init__(self, app: Holdfast, id: str, workflow: Workflow[Any, R] | None) -> None:
        self.id = id
        self._app = app
        self._workflow = workflow
        self._in_memory: asyncio.Future[RunRow] | None = None  # of a run without a journal

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def result(self) -> R:
        """Waits for the run to end: its result, or RunFailed (from the error), or RunCancelled.

        RunHalted if it was parked or quarantined: then nothing happens until somebody decides.
        """
        results = self._app._results
        if self._in_memory is not None:
            row = await asyncio.shield(self._in_memory)
        else:
            row = await results.wait(self.id)
        if row.status is Status.COMPLETED:
            return self._decode(row)
        if row.status is Status.CANCELLED:
            raise RunCancelled(f"run {self.id!r} was cancelled")
        if row.status in HALTED:
            raise RunHalted(f"run {self.id!r} is {row.status}: {row.reason}")
        error = codec.decode_error(row.output or b"null")
        raise RunFailed(f"run {self.id!r} failed: {type(error).__name__}: {error}") from error

    def _decode(self, row: RunRow) -> R:
        workflow = self._workflow or self._app.workflows.get(row.workflow)
        if workflow is None:
            return codec.decode(row.output or b"null", what=f"the result of run {self.id!r}")  # type: ignore[no-any-return]
        value: R = workflow.decode_result(row.output, self.id)
        return value

    @property
    def _kept_id(self) -> str:
        """Its id, for what the store is asked."""
        if self._in_memory is not None:
            raise NoJournal(
                f"run {self.id!r} has no journal (durability='none'): its result can be awaited, "
                "but it can be neither asked about nor told anything"
            )
        return self.id

    async def status(self) -> Status:
        return (await self._app.row(self._kept_id)).status

    async def history(self) -> list[Entry]:
        return await self._app.history(self._kept_id)

    async def why(self) -> str:
        return await self._app.why(self._kept_id)

    async def resolve(self, name: str, value: object, *, early: bool = False) -> None:
        await self._app.resolve(self._kept_id, name, value, early=early)

    async def send(self, message: object, *, channel: str = "") -> None:
        await self._app.send(self._kept_id, message, channel=channel)

    async def cancel(self) -> None:
        await self._app.cancel(self._kept_id)

    async def pause(self) -> None:
        await self._app.pause(self._kept_id)

    async def resume(self) -> None:
        await self._app.resume(self._kept_id)

    async def rerun(self) -> Run[R]:
        await self._app.rerun(self._kept_id)
        return self

    async def fork(self, *, before: str, id: str | None = None) -> Run[R]:
        return await self._app.fork(self._kept_id, before=before, id=id)
