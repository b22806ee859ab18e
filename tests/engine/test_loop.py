"""The event loop: what is wrapped is chained and put back, and plain asyncio replays exactly."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import anyio
import pytest
import uvloop

import holdfast
from holdfast import WorkerOptions
from holdfast.testing import Environment, crash_everywhere

WRAPPED = ("call_soon", "call_later", "call_at", "run_in_executor", "time")
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@holdfast.step
async def note(text: str) -> str:
    return text


@holdfast.workflow
async def works_in_parallel() -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(note(str(number))) for number in range(3)]
    return [task.result() for task in tasks]


@pytest.fixture(params=LOOPS)
def run_on(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    def run(coro: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(coro)

    return run


def test_the_loop_is_put_back_as_it_was(run_on: Any) -> None:
    def methods() -> list[Any]:
        loop = asyncio.get_running_loop()
        return [getattr(loop, name) for name in WRAPPED]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        before, attributes = methods(), set(vars(loop)) if hasattr(loop, "__dict__") else set()
        async with Environment([works_in_parallel]) as env:
            assert methods() != before
            async with Environment([works_in_parallel]) as second:
                assert await second.result(await second.start(works_in_parallel))
            assert await env.result(await env.start(works_in_parallel)) == ["0", "1", "2"]
        assert methods() == before
        assert (set(vars(loop)) if hasattr(loop, "__dict__") else set()) == attributes
        assert loop.get_task_factory() is None

    run_on(main())


@pytest.mark.parametrize("knows_context", [True, False])
def test_a_task_factory_of_somebody_elses_is_chained_and_put_back(
    run_on: Any, knows_context: bool
) -> None:
    made: list[str] = []

    def modern(loop: Any, coro: Any, **kwargs: Any) -> Any:
        made.append(coro.__qualname__)
        return asyncio.Task(coro, loop=loop, **kwargs)

    def old(loop: Any, coro: Any) -> Any:  # as it was before `context` and `name`
        made.append(coro.__qualname__)
        return asyncio.Task(coro, loop=loop)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        if isinstance(loop, uvloop.Loop) and not knows_context:
            pytest.skip("uvloop itself wants a factory to know `context`")
        factory = modern if knows_context else old
        loop.set_task_factory(factory)
        async with Environment([parallel]) as env:
            assert await env.result(await env.start(parallel)) == [1, 2]
            keys = list(env.started)
        assert loop.get_task_factory() is factory
        loop.set_task_factory(None)
        assert keys == ["/child@0/number#0", "/child@1/number#0"]
        assert sum("child" in name for name in made) == 2

    @holdfast.step
    async def number(value: int) -> int:
        return value

    async def child(value: int) -> int:
        return await number(value)

    @holdfast.workflow
    async def parallel() -> list[int]:
        tasks = [asyncio.get_running_loop().create_task(child(value)) for value in (1, 2)]
        return [await task for task in tasks]

    child.__qualname__ = "child"
    run_on(main())


async def test_a_factory_that_is_installed_later_is_left_in_place() -> None:
    def later(loop: Any, coro: Any, **kwargs: Any) -> Any:
        return asyncio.Task(coro, loop=loop, **kwargs)

    loop = asyncio.get_running_loop()
    async with Environment([works_in_parallel]):
        loop.set_task_factory(later)
    assert loop.get_task_factory() is later
    loop.set_task_factory(None)


def test_runs_work_in_the_loops_debug_mode() -> None:
    async def main() -> None:
        async with Environment([works_in_parallel]) as env:
            assert await env.result(await env.start(works_in_parallel)) == ["0", "1", "2"]
        assert (await crash_everywhere(works_in_parallel)).crashes > 0

    asyncio.run(main(), debug=True)


async def test_a_body_that_spins_fails_and_the_error_names_the_line() -> None:
    @holdfast.workflow
    async def spins() -> None:
        done = asyncio.create_task(note("never delivered"))
        while not done.done():  # noqa: ASYNC110
            await asyncio.sleep(0)

    line = inspect.getsourcelines(spins.fn)[1] + 4
    async with Environment([spins], patience=timedelta(seconds=240)) as env:
        with pytest.raises(holdfast.RunFailed) as failed:
            await env.result(await env.start(spins))
    assert isinstance(failed.value.__cause__, holdfast.BodySpins)
    assert f"test_loop.py, line {line}" in str(failed.value.__cause__)


async def test_a_few_turns_of_the_loop_are_no_spinning() -> None:
    @holdfast.workflow
    async def yields() -> str:
        for _ in range(1000):
            await asyncio.sleep(0)
        return await note("done")

    assert (await crash_everywhere(yields)).result == "done"


async def test_cancelled_handles_do_not_keep_a_run_from_resting() -> None:
    @holdfast.workflow
    async def calls_off() -> str:
        loop = asyncio.get_running_loop()
        soon = [loop.call_soon(print, "not called") for _ in range(3)]
        later = [loop.call_later(1, print, "not called") for _ in range(3)]
        for handle in [*soon, *later]:
            handle.cancel()
            handle.cancel()
            assert handle.cancelled()
        await holdfast.sleep(timedelta(days=1))
        return await note("rested")

    options = WorkerOptions(memory_wait=timedelta(0))
    assert (await crash_everywhere(calls_off, worker_options=options)).result == "rested"


async def test_a_callback_that_calls_itself_off_is_still_counted_as_running() -> None:
    """anyio's time-outs do that; two that fall due together were delivered into one another."""

    begun = asyncio.Event()

    @holdfast.step
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    @holdfast.workflow
    async def times_out_twice() -> str:
        with anyio.move_on_after(1):
            try:
                async with asyncio.timeout(1):
                    await endless()
            except TimeoutError:
                return await note("timed out")
        return await note("moved on")

    async with Environment([times_out_twice]) as env:
        run = await env.start(times_out_twice)
        await begun.wait()
        env.clock.advance(timedelta(seconds=2))  # type: ignore[union-attr]
        first = await env.result(run)
    assert first == "moved on"


async def test_what_a_step_sets_in_its_context_does_not_leak_into_the_body() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    @holdfast.step
    async def sets() -> str:
        variable.set("by the step")
        await asyncio.sleep(0)
        return variable.get()

    @holdfast.workflow
    async def looks() -> list[str]:
        before = variable.get()
        variable.set("by the body")
        return [before, await sets(), variable.get()]

    async with Environment([looks]) as env:
        variable.set("outside")
        found = await env.result(await env.start(looks))
    assert found == ["unset", "by the step", "by the body"]


async def test_a_bodys_time_stands_still_and_a_steps_time_is_real() -> None:
    @holdfast.step
    async def reads_the_clock() -> bool:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await asyncio.sleep(0.01)
        return 0 < loop.time() - before < 3600

    @holdfast.workflow
    async def compares() -> tuple[float, float, bool]:
        loop = asyncio.get_running_loop()
        before = loop.time()
        sum(range(100_000))
        stood_still = loop.time() - before
        await asyncio.sleep(3600)
        return stood_still, loop.time() - before, await reads_the_clock()

    async with Environment([compares]) as env:
        stood_still, slept, is_real = await env.result(await env.start(compares))
    assert stood_still == 0 and is_real
    assert slept == pytest.approx(3600)


async def test_code_outside_of_runs_keeps_its_own_timers_and_tasks() -> None:
    async with Environment([works_in_parallel]) as env:
        rung = asyncio.Event()
        asyncio.get_running_loop().call_later(0.001, rung.set)
        await asyncio.wait_for(rung.wait(), 120)
        task = asyncio.create_task(note("plain"))
        assert await task == "plain"
        assert await asyncio.to_thread(lambda: 1) == 1
    assert env.started == []


async def test_eager_tasks_of_a_body_replay_exactly() -> None:
    if not hasattr(asyncio, "eager_task_factory"):
        pytest.skip("Python 3.12 has eager tasks")
    loop = asyncio.get_running_loop()
    loop.set_task_factory(asyncio.eager_task_factory)
    try:
        assert (await crash_everywhere(works_in_parallel)).result == ["0", "1", "2"]
    finally:
        loop.set_task_factory(None)


async def test_a_thing_read_once_is_the_same_on_every_replay() -> None:
    calls: list[int] = []

    @holdfast.workflow
    async def draws() -> list[Any]:
        async def branch() -> list[Any]:
            return [holdfast.random(), holdfast.uuid4(), holdfast.now()]

        def call() -> int:
            calls.append(1)
            return len(calls)

        return [holdfast.once(call), *await asyncio.gather(branch(), branch()), await note("end")]

    await crash_everywhere(draws)
    calls.clear()
    async with Environment([draws]) as env:
        drawn = await env.result(await env.start(draws))
    assert drawn[0] == 1 and drawn[1] != drawn[2]
