"""A worker that is alive but hangs: its runs are handed on, and it is said where it hangs."""

from __future__ import annotations

import holdfast
from tests.crash.agent import hanging, line
from tests.crash.fleet import Fleet, Observer


async def test_a_blocked_event_loop_is_reported_and_its_runs_go_on_elsewhere(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    observer.holds = lambda effect: effect.name in ("block", "two")
    blocked = await fleet.add(lease=12.0, hang=10.0)
    run = await app.start(hanging, "block")
    innocent = await app.start(line, ["one", "two", "three"])
    await observer.sees("two", pid=blocked.pid)
    held = await observer.sees("block", pid=blocked.pid)
    peer = await fleet.add()
    held.let_go("hang")
    await blocked.says("has been blocked for")
    await blocked.says("in stuck")  # the function, from the stack
    (await observer.sees("two", pid=peer.pid)).let_go()
    (await observer.sees("block", pid=peer.pid)).let_go()
    await run.result()
    await innocent.result()
    assert "three" not in observer.names(pid=blocked.pid)
    notes = [worker.note for worker in await app.workers() if worker.pid == blocked.pid]
    assert not notes or "in stuck" in notes[0]
