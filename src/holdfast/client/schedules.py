"""What an app does with schedules: writes down what it declares, and what people want of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from holdfast.client.run import Run
from holdfast.clock import Clock, Micros
from holdfast.engine.schedule import Schedule, changed, resumed, triggered_run
from holdfast.engine.workflow import Workflow
from holdfast.errors import BadSchedule, StoreUnavailable, UnknownSchedule, UnknownWorkflow
from holdfast.store.base import Started, Store
from holdfast.text import can_be_stored
from holdfast.types import NewRun, ScheduleRow
from holdfast.worker.worker import Worker

if TYPE_CHECKING:
    from holdfast.client.app import Holdfast

TRIES_MAX = 100

Change = Callable[[ScheduleRow | None], ScheduleRow | None]
"""What a row becomes; the same: nothing is to be done."""


class Scheduling:
    """The part of an app that is about schedules."""

    workflows: dict[str, Workflow[Any, Any]]

    @property
    def store(self) -> Store:
        raise NotImplementedError

    @property
    def clock(self) -> Clock:
        raise NotImplementedError

    @property
    def worker(self) -> Worker | None:
        raise NotImplementedError

    async def _start(self, store: Store, new: NewRun) -> Started:
        raise NotImplementedError

    async def schedules(self) -> list[ScheduleRow]:
        """All schedules, by name, also those that no app declares any more."""
        return await self.store.schedules()

    async def pause_schedule(self, name: str) -> None:
        """Lets a schedule tick no more, until it is resumed. Its runs go on."""
        now = self.clock.now()
        await self._change(name, lambda row: row if row.paused else changed(row, now, paused=True))

    async def resume_schedule(self, name: str) -> None:
        """Lets a paused schedule tick again; the ticks of the time of the pause are dropped."""
        now = self.clock.now()
        await self._change(name, lambda row: resumed(row, now) if row.paused else row)

    async def trigger_schedule(self, name: str) -> Run[Any]:
        """Starts a run of a schedule now, beside its ticks, also while it is paused."""
        row = _named(await self.store.schedules(), name)
        started = await self._start(self.store, triggered_run(row, self.clock))
        app = cast("Holdfast", self)
        return Run(app, started.row.id, self.workflows.get(row.workflow))

    async def delete_schedule(self, name: str) -> None:
        """Forgets a schedule; its runs stay. An app that declares it brings it back when it
        opens."""
        if not can_be_stored(name) or not await self.store.delete_schedule(name):
            raise _unknown(await self.store.schedules(), name)

    async def _change(self, name: str, change: Callable[[ScheduleRow], ScheduleRow]) -> None:
        def known(row: ScheduleRow | None) -> ScheduleRow | None:
            return change(row) if row is not None else None

        if not await put(self.store, name, known):
            raise _unknown(await self.store.schedules(), name)
        if self.worker is not None:
            self.worker.wake()


def listed(
    given: Iterable[Schedule], workflows: Mapping[str, Workflow[Any, Any]]
) -> dict[str, Schedule]:
    found: dict[str, Schedule] = {}
    for schedule in given:
        if not isinstance(schedule, Schedule):
            raise BadSchedule(f"{schedule!r} is not a holdfast.Schedule")
        if schedule.name in found:
            raise BadSchedule(f"two schedules are named {schedule.name!r}")
        workflow = schedule.workflow
        if workflow.name not in workflows and not workflow.is_remote:
            raise UnknownWorkflow(
                f"workflow {workflow.name!r} of schedule {schedule.name!r} is not listed: "
                f"Holdfast(..., workflows=[{workflow.name}])"
            )
        found[schedule.name] = schedule
    return found


async def declare(store: Store, declared: Iterable[Schedule], now: Micros) -> None:
    """Writes down what an app declares; what is there already is left alone."""
    for schedule in declared:
        schedule.workflow.check()

        def change(seen: ScheduleRow | None, schedule: Schedule = schedule) -> ScheduleRow | None:
            row = schedule.declared(seen, now)
            return row if seen is None or row == seen else changed(row, now)

        await put(store, schedule.name, change)


async def put(store: Store, name: str, change: Change) -> bool:
    """Changes a schedule, however many change it at the same time; False: it is not there."""
    for _ in range(TRIES_MAX):
        seen = next((row for row in await store.schedules() if row.name == name), None)
        wanted = change(seen)
        if wanted is None:
            return False
        if wanted == seen or await store.put_schedule(wanted, seen=seen):
            return True
    raise StoreUnavailable(f"schedule {name!r} is changed by others all the time; try again")


def _named(rows: Iterable[ScheduleRow], name: str) -> ScheduleRow:
    rows = list(rows)
    found = next((row for row in rows if row.name == name), None)
    if found is None:
        raise _unknown(rows, name)
    return found


def _unknown(rows: Iterable[ScheduleRow], name: str) -> UnknownSchedule:
    known = ", ".join(repr(row.name) for row in rows) or "none"
    return UnknownSchedule(f"there is no schedule {name!r}; known are: {known}")
