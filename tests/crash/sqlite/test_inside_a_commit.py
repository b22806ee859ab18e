"""Deaths and stops inside SQLite's write transaction, which is open in the worker's own process."""

from __future__ import annotations

import os
import signal

import pytest

import holdfast
from tests.crash.agent import line
from tests.crash.fleet import Fleet, Observer

LEASE = 10.0


async def test_a_kill_before_the_commit_is_said_leaves_nothing_of_it(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    trap = {"where": "inside", "key": "effect#1", "number": "SIGKILL"}
    first = await fleet.add(trap=trap)
    observer.holds = lambda effect: effect.name == "one"
    run = await app.start(line, ["one", "two", "three"])
    held = await observer.sees("one", pid=first.pid)
    await fleet.add()
    held.let_go()
    assert await first.ended() == -signal.SIGKILL
    tokens = await run.result()
    assert observer.names() == ["one", "two", "two", "three"]
    last = {effect.name: effect.token for effect in observer.effects}
    assert tokens == [last["one"], last["two"], last["three"]]


async def test_a_kill_at_the_commit_of_the_end_leaves_a_run_that_ends_once(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    # A run's last step and its end share a commit: either both are there, or neither is.
    trap = {"where": "inside", "key": "effect#1", "number": "SIGKILL"}
    first = await fleet.add(trap=trap)
    run = await app.start(line, ["one", "two"])
    assert await first.ended() == -signal.SIGKILL
    assert not (await app.row(run.id)).status.ended
    await fleet.add()
    assert len(await run.result()) == 2
    assert observer.names() == ["one", "two", "two"]


@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="cannot see who holds a lock")
async def test_a_worker_stopped_inside_a_transaction_is_ended_by_its_peer(
    app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    trap = {"where": "inside", "key": "effect#1", "number": "SIGSTOP"}
    stopped = await fleet.add(lease=LEASE, trap=trap)
    observer.holds = lambda effect: effect.name == "two"
    run = await app.start(line, ["one", "two", "three"])
    held = await observer.sees("two", pid=stopped.pid)
    peer = await fleet.add()
    held.let_go()
    await stopped.says("sprung")
    assert await stopped.ended() == -signal.SIGKILL
    again = await observer.sees("two", pid=peer.pid)
    again.let_go()
    tokens = await run.result()
    assert tokens[1] == again.token, "what was not committed came into the journal"
    assert observer.names() == ["one", "two", "two", "three"]
