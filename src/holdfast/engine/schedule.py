"""Schedules: what is declared, what is kept of it, and the run that a tick becomes."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVarTuple, get_args

from holdfast import codec
from holdfast.clock import Clock, Micros, to_datetime
from holdfast.engine.context import scope
from holdfast.engine.ticks import every as interval
from holdfast.engine.ticks import ticks_of
from holdfast.engine.workflow import RunOptions, Workflow, new_run, require
from holdfast.errors import BadSchedule
from holdfast.types import CatchUp, NewRun, ScheduleRow

Ts = TypeVarTuple("Ts")

NAME_CHARACTERS_MAX = 400
"""The id of a run is a little longer, and has at most 512."""
LATE_MAX: Micros = 60_000_000
"""catch_up="skip": so late a tick is still made; a restart or a failover must not lose it."""
CATCH_UP_MAX = 1000
"""catch_up="all": so many missed ticks are made, the newest."""


class Schedule:
    """Starts a run of a workflow at each tick: `Schedule("nightly", report, "berlin",
    cron="0 3 * * *", zone="Europe/Berlin")`. Whatever dies, each tick has one run.

    name: its own; a changed declaration of the same name changes the schedule.
    args, kwargs: the arguments of the workflow.
    cron: when it ticks, in the time zone `zone`; or `every`: an interval, counted from 1970.
    catch_up: what becomes of ticks that nobody was there for: "latest" is one run for all of
        them, "all" a run for each, "skip" none.
    options: of its runs, as `with_options` takes them: session, priority, …
    """

    def __init__(
        self,
        name: str,
        workflow: Callable[[*Ts], Any],
        /,
        *args: *Ts,
        cron: str | None = None,
        every: timedelta | None = None,
        zone: str = "UTC",
        catch_up: CatchUp = "latest",
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        _check_name(name)
        self.workflow: Workflow[Any, Any] = require(workflow)
        if (cron is None) == (every is None):
            raise BadSchedule(f"schedule {name!r} needs one of cron and every")
        for what, text in (("cron", cron or ""), ("zone", zone)):
            if not isinstance(text, str):
                raise BadSchedule(f"the {what} of schedule {name!r} is text, not {text!r}")
        if every is not None and zone != "UTC":
            raise BadSchedule(f"an interval knows no time zone: schedule {name!r} needs no `zone`")
        if catch_up not in get_args(CatchUp):
            choices = ", ".join(repr(choice) for choice in get_args(CatchUp))
            raise BadSchedule(f"catch_up is one of {choices}, not {catch_up!r}")
        self.cron = " ".join(cron.split()) if cron is not None else interval(every or timedelta())
        if every is None and self.cron.startswith("@"):
            raise BadSchedule(f"{cron!r} is no cron expression; for an interval there is `every`")
        self.zone = zone
        self.catch_up: CatchUp = catch_up
        self.options = self.workflow.options.updated(**(options or {}))
        if self.options.id is not None or self.options.durability != "full":
            raise BadSchedule("the runs of a schedule have ids of their own and are durable")
        self._ticks = ticks_of(self.cron, zone)
        self._args, self._kwargs = args, dict(kwargs or {})
        self._input = self.workflow.encode_input(args, self._kwargs)

    def __repr__(self) -> str:
        return f"<schedule {self.name} of {self.workflow.name}>"

    def declared(self, seen: ScheduleRow | None, now: Micros) -> ScheduleRow:
        """The row that this declaration makes of the one that is there. Only another cron
        expression or zone makes it count anew: otherwise ticks that were missed stay missed."""
        moved = seen is None or (seen.cron, seen.zone) != (self.cron, self.zone)
        given = self.options.given()
        return ScheduleRow(
            name=self.name,
            workflow=self.workflow.name,
            input=self._input,
            digest=codec.digest(self._input),
            options=codec.encode(given, what=f"the options of {self!r}") if given else None,
            cron=self.cron,
            zone=self.zone,
            catch_up=self.catch_up,
            paused=seen.paused if seen is not None else False,
            next_at=self._ticks.after(now) if moved or seen is None else seen.next_at,
            last_at=seen.last_at if seen is not None else None,
            last_run=seen.last_run if seen is not None else None,
            updated_at=seen.updated_at if seen is not None else now,
        )


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARACTERS_MAX:
        raise BadSchedule(
            f"a schedule's name is text of 1 to {NAME_CHARACTERS_MAX} characters, not {name!r}"
        )
    if any(not c.isprintable() for c in name) or name.encode("utf-8", "replace").decode() != name:
        raise BadSchedule(f"a schedule's name has only printable characters, unlike {name!r}")


def changed(row: ScheduleRow, now: Micros, **changes: Any) -> ScheduleRow:
    """The row with these changes, and a time of change that it never had before."""
    return row._replace(updated_at=max(now, row.updated_at + 1), **changes)


def resumed(row: ScheduleRow, now: Micros) -> ScheduleRow:
    """Ticks of the time of the pause are over: nobody wanted them."""
    return changed(row, now, paused=False, next_at=ticks_of(row.cron, row.zone).after(now))


# Ticks


class Move(NamedTuple):
    """A schedule's way from one tick, `at`, to the next."""

    at: Micros
    tick: Micros | None  # whose run is started; None: the ticks in between are dropped
    next_at: Micros | None
    too_many: bool = False  # more were missed than are ever caught up with


def moves(row: ScheduleRow, now: Micros) -> Iterator[Move]:
    """What is to be done for a schedule until it is due no more, by its catch-up policy."""
    at = row.next_at
    if at is None or at > now:
        return
    ticks = ticks_of(row.cron, row.zone)
    first = at
    if row.catch_up == "skip" and now - at > LATE_MAX:
        first = ticks.after(now - LATE_MAX - 1) or now + 1
    elif row.catch_up == "latest":
        first = max([at, *ticks.last(now)])
        yield Move(at, first, ticks.after(now))
        return
    elif row.catch_up == "all":
        missed = sum(1 for _ in itertools.takewhile(now.__ge__, _some(ticks.since(at))))
        first = ticks.last(now, CATCH_UP_MAX)[0] if missed >= CATCH_UP_MAX else at
    if first > at:
        yield Move(at, None, first, too_many=row.catch_up == "all")
    for following in ticks.since(first):
        if first > now:
            return
        yield Move(first, first, following)
        first = following
    if first <= now:
        yield Move(first, first, None)  # the last tick of all


def _some(ticks: Iterator[Micros]) -> Iterator[Micros]:
    return itertools.islice(ticks, CATCH_UP_MAX)


def tick_run(row: ScheduleRow, at: Micros, clock: Clock) -> NewRun:
    """The run of a tick."""
    return _run(row, f"{row.name}@{_iso(at)}", at, clock)


def triggered_run(row: ScheduleRow, clock: Clock) -> NewRun:
    """A run beside the ticks."""
    at = clock.now()
    return _run(row, f"{row.name}@{_iso(at)}~{uuid.uuid4().hex[:8]}", at, clock)


def _run(row: ScheduleRow, id: str, at: Micros, clock: Clock) -> NewRun:
    what = f"the options of schedule {row.name!r}"
    given = codec.decode(row.options, what=what) if row.options else {}
    new = new_run(row.workflow, row.input, clock, RunOptions(id=id, **given))
    return new._replace(options=codec.encode({"tick": at}, what=what))


def _iso(at: Micros) -> str:
    return to_datetime(at).isoformat().replace("+00:00", "Z")


def tick() -> datetime | None:
    """The tick that this run was started for (aware, UTC), however late it was; None if no schedule
    started it."""
    where = scope()
    options = where.frame.run.row.options if where is not None else None
    if not options:
        return None
    at: Micros | None = codec.decode(options, what="the options of this run").get("tick")
    return to_datetime(at) if at is not None else None
