"""Code of a run that wants to end the process: what becomes of the run, and of the process."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.testing import Environment, crash_everywhere


@holdfast.step
def leave() -> int:
    sys.exit(3)


@holdfast.step
async def leave_the_loop() -> int:
    sys.exit(4)


@holdfast.step
async def stay() -> int:
    return 1


@holdfast.workflow
async def step_in_a_thread() -> int:
    return await asyncio.to_thread(leave)


@holdfast.workflow
async def plain_thread() -> None:
    await asyncio.to_thread(sys.exit, 3)


@holdfast.workflow
def def_body() -> None:
    sys.exit(3)


@holdfast.workflow
def step_of_a_def_body() -> int:
    return leave()


IN_THREADS = [step_in_a_thread, plain_thread, def_body, step_of_a_def_body]


@pytest.mark.parametrize("workflow", IN_THREADS)
async def test_an_exit_in_a_thread_fails_the_run_and_nothing_else(
    workflow: holdfast.Workflow[[], object],
) -> None:
    async with Environment([workflow]) as env:
        with pytest.raises(holdfast.RunFailed, match=r"SystemExit\(3\)") as failed:
            await env.result(await env.start(workflow))
    assert isinstance(failed.value.__cause__, holdfast.Terminal)


async def test_a_body_can_deal_with_an_exit_in_a_thread() -> None:
    @holdfast.workflow
    async def deals_with_it() -> str:
        try:
            await asyncio.to_thread(leave)
        except holdfast.Terminal:
            return "stayed"
        return "?"

    assert (await crash_everywhere(deals_with_it)).result == "stayed"


@holdfast.workflow
async def body_exits() -> int:
    await stay()
    sys.exit(4)


@holdfast.workflow
async def step_exits() -> int:
    return await leave_the_loop()


@holdfast.workflow
async def task_exits() -> int:
    leaving = asyncio.create_task(leave_the_loop())
    await holdfast.sleep(1)
    return await leaving


@pytest.mark.parametrize("workflow", [body_exits, step_exits, task_exits])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_run_that_ends_its_process_each_time_is_quarantined(
    workflow: holdfast.Workflow[[], int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = holdfast.Holdfast(f"sqlite:///{tmp_path}/runs.db", workflows=[workflow])

    async def go_on() -> None:
        async with app:
            await (await app.with_options(id="exits").start(workflow)).result()

    for _ in range(8):
        try:
            asyncio.run(go_on())
        except SystemExit as left:
            assert left.code == 4
        except holdfast.RunHalted as halted:
            assert "quarantined" in str(halted)
            break
    else:
        pytest.fail("it goes on ending its process")
    gc.collect()
    caplog.clear()  # asyncio complains about tasks that ended the loop: so they did
