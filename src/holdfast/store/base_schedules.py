"""The store protocol's part that is about time, schedules and deadlines; it goes on in base.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.clock import Micros
from holdfast.types import NewRun, ScheduleRow, WorkerId

if TYPE_CHECKING:
    from holdfast.store.base import Refused, Started


class Due(NamedTuple):
    """When there will be something to do."""

    run: Micros | None  # when the next run can be claimed
    tick: Micros | None  # when the next tick of a schedule is to be made
    deadline: Micros | None = None  # when Store.expire has something to do next

    @property
    def first(self) -> Micros | None:
        times = (self.run, self.tick, self.deadline)
        return min((at for at in times if at is not None), default=None)


class Ticked(NamedTuple):
    moved: bool  # False: nothing was done, see Store.tick
    run: Started | Refused | None = None  # Refused: its session was busy, or its id was used before


class ScheduleStore(Protocol):
    async def time(self) -> Micros | None:
        """What time it is by the clock that all its users share; None: by this machine's own."""
        ...

    async def next_due(
        self, workflows: Sequence[str], *, alone: bool = True, worker: WorkerId | None = None
    ) -> Due:
        """`next_ready`, the next tick of a schedule of these workflows, and the next deadline for
        `expire`, in one look. What has passed counts until it is done."""
        ...

    async def expire(self, now: Micros, output: bytes, *, limit: int = 100) -> int:
        """Sees to runs that are past their deadline, and that nobody executes; says to how many.

        One that was never claimed, or is quarantined, has nothing to unwind: it fails, with this
        output. A paused or parked one becomes claimable, so that it can unwind. Others are left
        alone: those in memory look at their deadline themselves, those that wait do so until then.
        """
        ...

    async def schedules(
        self, *, workflows: Sequence[str] | None = None, due_by: Micros | None = None
    ) -> list[ScheduleRow]:
        """By name: all, or those of these workflows; with `due_by`, only those that are not paused
        and have a tick at that time or earlier."""
        ...

    async def put_schedule(self, schedule: ScheduleRow, *, seen: ScheduleRow | None) -> bool:
        """Adds a schedule (`seen` None), or changes it from what it was when it was read. False:
        meanwhile it was added, changed, ticked or deleted; read it again. `last_at` and `last_run`
        are left alone."""
        ...

    async def delete_schedule(self, name: str) -> bool:
        """False: there is none of this name."""
        ...

    async def tick(
        self,
        seen: ScheduleRow,
        next_at: Micros | None,
        *,
        at: Micros | None = None,
        run: NewRun | None = None,
    ) -> Ticked:
        """Moves a schedule on and accepts the run of its tick `at`, both or neither.

        Done only if `next_at` is still what it was when the schedule was read, and the schedule was
        neither changed, paused nor deleted since: of several that make the same tick one does,
        whatever became of the run in between. Without a run, ticks are dropped. A run that is
        refused, because its session is busy, does not hold the schedule up.
        """
        ...
