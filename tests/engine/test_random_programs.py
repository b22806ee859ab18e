"""Random asyncio programs survive a crash at every place of their journals.

`crash_everywhere` holds the three claims: no recorded step is executed again, the replay of a
finished journal starts nothing and adds nothing, and it ends as the run did. Time is real here:
time-outs are to race with steps.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import uvloop

from holdfast import SystemClock, WorkerOptions
from holdfast.testing import crash_everywhere
from tests.engine.programs import program, world

LOOPS = {"asyncio": asyncio.run, "uvloop": uvloop.run}


async def survive(seed: int, depth: int) -> int:
    world.seed(seed)
    # Every other program leaves memory whenever it waits.
    memory_wait = timedelta(seconds=5 if seed % 2 else 0)
    report = await crash_everywhere(
        program,
        seed,
        depth,
        clock=SystemClock(),
        worker_options=WorkerOptions(memory_wait=memory_wait),
    )
    return report.crashes


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("seed", range(12))
def test_a_random_program_survives_a_crash_at_every_entry(loop: str, seed: int) -> None:
    assert LOOPS[loop](survive(seed, depth=1)) > 0


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_random_programs_survive_a_crash_at_every_entry(loop: str, seed: int) -> None:
    assert LOOPS[loop](survive(seed, depth=1 + seed % 2)) > 0
