"""A claim whose answer comes when the worker that asked has lost its registration and has another.

It was stopped in between: what it claimed is others' by now, and it does not begin with it.
"""

from __future__ import annotations

import signal

import pytest

import holdfast
from tests.crash.agent import line
from tests.crash.fleet import Fleet, Observer

LEASE = 10.0


@pytest.mark.parametrize("until", ["lost", "registered"])
async def test_what_was_claimed_under_a_lost_registration_is_not_begun(
    until: str, app: holdfast.Holdfast, fleet: Fleet, observer: Observer
) -> None:
    # With room for one run: what it does not begin must not take the place of others either.
    stopped = await fleet.add(lease=LEASE, concurrency=1, claim_trap={"until": until})
    observer.holds = lambda effect: effect.name == "one"
    run = await app.start(line, ["one"])
    await stopped.says("sprung")
    peer = await fleet.add()
    held = await observer.sees("one", pid=peer.pid)
    stopped.send(signal.SIGCONT)
    await stopped.says("heard of it")
    held.let_go()
    assert await run.result() == [held.token]
    await peer.kill()
    await app.start(line, ["two"])
    await observer.sees("two")
    assert observer.names(pid=stopped.pid) == ["two"]
