"""A schedule that is far behind, so that its workers make ticks as fast as they can, and an audit
of what they made: the tests of ticks need no time to pass."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

import holdfast
from holdfast.clock import Micros, to_datetime, to_micros
from holdfast.types import RunFilter, Status
from tests.crash.agent import line
from tests.crash.fleet import Fleet, Observer

INTERVAL = timedelta(days=1)
"""So long that the next one hardly falls due while a test looks."""
NAME = "backlog"
TICK = "tick"


async def declare(app: holdfast.Holdfast, ticks: int) -> Micros:
    """The schedule, with so many ticks that nobody has made; gives the first of them."""
    schedule = holdfast.Schedule(NAME, line, [TICK], every=INTERVAL, catch_up="all")
    row = schedule.declared(None, app.clock.now() - ticks * to_micros(INTERVAL))
    assert await app.store.put_schedule(row, seen=None)
    assert row.next_at is not None
    return row.next_at


async def audit(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer, first: Micros, ticks: int
) -> None:
    """Waits until the ticks have had their effects, and looks for what is missing or double."""

    def all_seen() -> bool:
        return len({effect.run for effect in observer.effects if effect.name == TICK}) >= ticks

    await observer.until(all_seen, f"{ticks} ticks")
    (row,) = await app.schedules()
    assert row.next_at is not None
    expected = [
        f"{NAME}@{to_datetime(at).isoformat().replace('+00:00', 'Z')}"
        for at in range(first, row.next_at, to_micros(INTERVAL))
    ]
    assert len(expected) >= ticks
    for id in expected:
        await app.result(id)
    rows = await app.list(RunFilter(limit=10 * ticks, newest_first=False))
    assert [found.id for found in rows] == expected
    assert {found.status for found in rows} == {Status.COMPLETED}
    # The key of an effect holds the incarnation of its run: of each tick there was one run, also
    # among those that are no more.
    keys = defaultdict(set)
    for effect in observer.effects:
        if effect.name == TICK:
            keys[effect.run].add(effect.key)
    assert [run for run, found in keys.items() if len(found) > 1] == []
    said = [text for process in fleet.all for text in process.said]
    assert [text for text in said if "was there before its tick" in text] == []
    assert await app.store.check() == []
