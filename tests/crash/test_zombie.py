"""Workers that were stopped, taken for dead, and come back: they write and do nothing more."""

from __future__ import annotations

import signal

import holdfast
from holdfast.types import Kind
from tests.crash.agent import line
from tests.crash.fleet import Fleet, Observer

LEASE = 10.0
"""Of those who are stopped; whoever takes over keeps its own for longer than any test."""


async def claims(app: holdfast.Holdfast, run: str) -> int:
    return sum(entry.kind is Kind.CLAIM for entry in await app.history(run))


async def test_a_worker_stopped_past_its_lease_does_nothing_more_to_its_run(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    observer.holds = lambda effect: effect.name == "two"
    stopped = await fleet.add(lease=LEASE)
    run = await app.start(line, ["one", "two", "three", "four"])
    held = await observer.sees("two", pid=stopped.pid)
    peer = await fleet.add()
    await fleet.stop(stopped)
    again = await observer.sees("two", pid=peer.pid)
    held.let_go()  # the answer waits for the stopped one; now it may complete its step
    stopped.send(signal.SIGCONT)
    await stopped.says("lost its lease")
    again.let_go()
    tokens = await run.result()
    assert tokens[1] == again.token
    assert observer.names(pid=stopped.pid) == ["one", "two"]
    assert observer.names(pid=peer.pid) == ["two", "three", "four"]
    assert await claims(app, run.id) == 2


async def test_a_worker_that_came_back_serves_again(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    observer.holds = lambda effect: effect.name == "two"
    stopped = await fleet.add(lease=LEASE)
    run = await app.start(line, ["one", "two"])
    await observer.sees("two", pid=stopped.pid)
    peer = await fleet.add()
    await fleet.stop(stopped)
    await observer.sees("two", pid=peer.pid)
    stopped.send(signal.SIGCONT)
    await stopped.says("lost its lease")
    await peer.kill()
    (await observer.sees("two", pid=stopped.pid, count=2)).let_go()
    await run.result()


async def test_the_queued_batch_of_a_zombie_is_refused(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    # It stops itself with the batch in its hands; the batch holds steps of several runs.
    trap = {"where": "before", "key": "effect#1", "number": "SIGSTOP"}
    observer.holds = lambda effect: effect.name == "two"
    zombie = await fleet.add(lease=LEASE, trap=trap)
    runs = [await app.start(line, ["one", "two", "three"]) for _ in range(3)]
    for run in runs:
        await observer.sees("two", run=run.id)
    peer = await fleet.add()
    observer.let_all_go()
    await zombie.says("sprung")
    for run in runs:
        await observer.sees("three", run=run.id, pid=peer.pid)
    zombie.send(signal.SIGCONT)
    await zombie.says("is dropped here")
    for run in runs:
        tokens = await run.result()
        mine = {e.token for e in observer.effects if e.pid == peer.pid and e.run == run.id}
        assert set(tokens[1:]) <= mine
        assert await claims(app, run.id) == 2
    assert "three" not in observer.names(pid=zombie.pid)
