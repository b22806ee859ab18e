"""Workers that die while they make the ticks of a schedule lose none and double none."""

from __future__ import annotations

import signal
from datetime import datetime, timedelta

import pytest

import holdfast
from holdfast.clock import to_datetime
from holdfast.types import RunFilter
from tests.crash import backlog
from tests.crash.agent import line
from tests.crash.fleet import Fleet, Observer
from tests.crash.trap import TICK_GATE

TICKS = 400


@pytest.mark.parametrize("where", ["before", "after"])
async def test_two_workers_of_which_one_is_killed_make_one_run_of_each_tick(
    where: str, app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    trap = {"where": where, "nth": 3, "number": "SIGKILL"}
    victim = await fleet.add(tick_trap=trap)
    # It is to be quick enough for its share: the other one waits for its death in the middle.
    await fleet.add(tick_gate=TICKS // 4)
    observer.holds = lambda effect: effect.name == TICK_GATE
    first = await backlog.declare(app, TICKS)
    assert await victim.ended() == -signal.SIGKILL
    observer.let_all_go()
    await fleet.add()
    await backlog.audit(app, fleet, observer, first, TICKS)


async def test_a_worker_that_was_the_only_one_leaves_its_ticks_to_the_next(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    first = await backlog.declare(app, 50)
    for where in ("after", "before", "after"):
        victim = fleet.begin(tick_trap={"where": where, "nth": 11, "number": "SIGKILL"})
        assert await victim.ended() == -signal.SIGKILL
    await fleet.add()
    await backlog.audit(app, fleet, observer, first, 50)


async def test_workers_that_sleep_wake_up_for_a_tick(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    await fleet.add()
    await fleet.add()
    schedule = holdfast.Schedule("often", line, ["tick"], every=timedelta(seconds=1))
    row = schedule.declared(None, app.clock.now())
    assert await app.store.put_schedule(row, seen=None)
    await observer.sees("tick", count=3)
    runs = await app.list(RunFilter(newest_first=False))
    assert len({run.id for run in runs}) == len(runs) >= 3
    for run in runs:
        tick = datetime.fromisoformat(run.id.partition("@")[2])
        assert to_datetime(run.created_at) >= tick
    keys = [effect.key for effect in observer.effects]
    assert len(set(keys)) == len(keys), "nobody died, and no tick was made twice"
