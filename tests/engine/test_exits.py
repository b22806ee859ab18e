"""Code of a run that wants to end the process: what becomes of the run, and of the process."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import operator
import pickle
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

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


pools: list[Executor] = []
"""Those that the workflows below use: workflows take no executor."""


@pytest.fixture
def pool() -> Iterator[None]:
    # Forked from here, with the threads of other tests, a process might stand still.
    spawned = ProcessPoolExecutor(
        1,
        mp_context=multiprocessing.get_context("spawn"),
        # Who starts tests in the background lets them ignore interrupts.
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.default_int_handler),
    )
    with spawned:
        pools.append(spawned)
        yield
        pools.clear()


async def in_a_pool(*work: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(pools[0], *work)


@holdfast.step
async def exits_in_a_pool() -> None:
    await in_a_pool(sys.exit, 3)


@holdfast.workflow
async def body_with_a_pool() -> None:
    await in_a_pool(sys.exit, 3)


@holdfast.workflow
async def step_with_a_pool() -> None:
    await exits_in_a_pool()


@holdfast.workflow
async def interrupted_pool() -> None:
    await in_a_pool(signal.raise_signal, signal.SIGINT)


@pytest.mark.parametrize("workflow", [body_with_a_pool, step_with_a_pool, interrupted_pool])
async def test_an_exit_in_a_pool_of_processes_fails_the_run_and_nothing_else(
    workflow: holdfast.Workflow[[], object], pool: None
) -> None:
    async with Environment([workflow]) as env:
        run = await env.start(workflow)
        with pytest.raises(holdfast.RunFailed, match=r"SystemExit|KeyboardInterrupt") as failed:
            await run.result()
    assert isinstance(failed.value.__cause__, holdfast.Terminal)


async def test_work_in_a_pool_that_a_step_gives_up_is_called_off() -> None:
    class Stuck(Executor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            return work

    work: Future[Any] = Future()
    pools.append(Stuck())

    @holdfast.step(timeout=timedelta(milliseconds=10), retry=holdfast.Retry(attempts=1))
    async def waits() -> None:
        await in_a_pool(print)

    @holdfast.workflow
    async def gives_up() -> None:
        await waits()

    async with Environment([gives_up]) as env:
        run = await env.start(gives_up)
        with pytest.raises(holdfast.RunFailed, match="took longer"):
            await run.result()
    pools.clear()
    assert work.cancelled()


async def test_a_pool_of_interpreters_is_sent_nothing_of_the_run() -> None:
    class InterpreterPoolExecutor(ThreadPoolExecutor):
        """As in Python 3.14: a pool of threads whose work is pickled."""

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            pickle.dumps((fn, args, kwargs))
            return super().submit(fn, *args, **kwargs)

    @holdfast.workflow
    async def calculates() -> int:
        found: int = await in_a_pool(operator.add, 1, 2)
        return found

    with InterpreterPoolExecutor(1) as executor:
        pools.append(executor)
        assert (await crash_everywhere(calculates)).result == 3
    pools.clear()


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
