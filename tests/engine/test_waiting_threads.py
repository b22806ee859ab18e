"""A run whose threads only wait leaves memory; one of whose threads does anything else stays."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Status
from holdfast.engine import rest
from holdfast.engine.execution import Execution
from holdfast.testing import Environment, crash_everywhere

SECONDS_MAX = 120
AT_ONCE = holdfast.WorkerOptions(memory_wait=timedelta(0), unsure_wait=timedelta(0))
Asks = Callable[[], Awaitable[Any]]


def answer_to(name: str = "answer") -> str:
    return holdfast.promise(name, str).result()


@holdfast.step
def asks_in_a_step(name: str) -> str:
    return answer_to(name)


def in_context(pool: ThreadPoolExecutor, work: Callable[..., Any], *args: Any) -> Any:
    """In a thread that the engine is not told of."""
    return pool.submit(contextvars.copy_context().run, work, *args)


def as_workflow(asks: Asks) -> Any:
    @holdfast.step(name="asks")
    async def step() -> Any:
        return await asks()

    @holdfast.workflow(name="works")
    async def body() -> Any:
        return await step()

    return body


# Those that leave


async def asks_in_a_thread() -> str:
    return await asyncio.to_thread(answer_to)


async def asks_in_a_step_in_a_thread() -> str:
    return await asyncio.to_thread(lambda: asks_in_a_step("answer"))


async def asks_in_two_threads_and_a_task() -> str:
    async def other() -> str:
        return await holdfast.promise("other", str)

    threads = [asyncio.to_thread(answer_to), asyncio.to_thread(answer_to, "another")]
    return (await asyncio.gather(*threads, other()))[0]


async def asks_in_the_second_job_of_a_thread() -> str:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        assert await loop.run_in_executor(pool, int) == 0
        return await loop.run_in_executor(pool, answer_to)


async def waits_for_a_task_that_waits_for_a_thread() -> str:
    task = asyncio.create_task(asks_in_a_thread())
    await asyncio.wait([task])
    return task.result()


async def waits_for_a_thread_in_a_generator() -> str:
    async def found() -> AsyncIterator[str]:
        thread = asyncio.create_task(asks_in_a_thread())
        await asyncio.wait([thread, asyncio.create_task(asks_in_a_thread_again())])
        yield thread.result()

    return await anext(found())


async def asks_in_a_thread_again() -> str:
    return await asyncio.to_thread(answer_to, "another")


async def waits_for_threads_as_they_complete() -> str:
    @holdfast.step
    def asks_in_threads() -> str:
        with ThreadPoolExecutor(2) as pool:
            asked = [in_context(pool, answer_to)]
            return next(str(one.result()) for one in as_completed(asked))

    return await asyncio.to_thread(asks_in_threads)


async def waits_in_an_event_loop_of_its_own() -> str:
    async def asks() -> str:
        return (await asyncio.gather(asyncio.to_thread(answer_to)))[0]

    @holdfast.step
    def runs_a_loop() -> str:
        return asyncio.run(asks())

    return await asyncio.to_thread(runs_a_loop)


LEAVING: list[Asks] = [
    asks_in_a_thread,
    asks_in_a_step_in_a_thread,
    asks_in_two_threads_and_a_task,
    asks_in_the_second_job_of_a_thread,
    waits_for_a_task_that_waits_for_a_thread,
    waits_for_a_thread_in_a_generator,
    waits_for_threads_as_they_complete,
    waits_in_an_event_loop_of_its_own,
]


def asked_by(asks: Asks) -> tuple[str, ...]:
    if asks is asks_in_two_threads_and_a_task:
        return ("other", "another", "answer")
    return ("another", "answer") if asks is waits_for_a_thread_in_a_generator else ("answer",)


ANSWERS = {"answer": "yes", "other": "no", "another": "perhaps"}


@pytest.mark.parametrize("asks", LEAVING)
async def test_a_step_that_waits_in_threads_leaves_memory_and_comes_back(asks: Asks) -> None:
    workflow = as_workflow(asks)
    async with Environment([workflow], worker_options=AT_ONCE) as env:
        run = await env.start(workflow)
        for name in asked_by(asks):
            await env.settle()
            assert (env.worker.runs, await run.status()) == ({}, Status.WAITING)
            await run.resolve(name, ANSWERS[name])
        assert await env.result(run) == "yes"


@pytest.mark.parametrize("asks", LEAVING)
async def test_a_step_that_waits_in_threads_survives_crashes_while_it_is_away(asks: Asks) -> None:
    workflow = as_workflow(asks)
    answers = {name: ANSWERS[name] for name in ANSWERS if name in asked_by(asks)}
    assert (await crash_everywhere(workflow, answers=answers)).result == "yes"
    async with Environment([workflow], worker_options=AT_ONCE) as env:
        run = await env.start(workflow)
        await env.settle()
        await env.crash()
        for name, answer in answers.items():
            await run.resolve(name, answer, early=True)
        assert await env.result(run) == "yes"


# Those that stay


class Working:
    """Plain work: it goes on until it is told to end."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        self.plain: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __call__(self) -> None:
        self.begun.set()
        while not self.ended.wait(0.001):
            pass

    async def read(self) -> None:
        """A socket looks like this."""
        self.begun.set()
        await self.plain

    def end(self) -> None:
        self.ended.set()
        if not self.plain.done():
            self.plain.set_result(None)


async def beside_a_thread_that_works(work: Working) -> str:
    threads = asyncio.to_thread(answer_to), asyncio.to_thread(work)
    return (await asyncio.gather(*threads))[0]


async def beside_a_thread_that_nobody_awaits(work: Working) -> str:
    left = asyncio.get_running_loop().run_in_executor(None, work)
    found = await asyncio.to_thread(answer_to)
    await left
    return found


async def beside_a_socket(work: Working) -> str:
    return (await asyncio.gather(asyncio.to_thread(answer_to), work.read()))[0]


async def before_a_job_that_is_queued(work: Working) -> str:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        asked = loop.run_in_executor(pool, answer_to)
        loop.run_in_executor(pool, work)
        work.begun.set()
        return await asked


async def in_a_step_of_a_thread_that_works_beside_it(work: Working) -> str:
    @holdfast.step
    def asks_beside() -> str:
        with ThreadPoolExecutor(1) as pool:
            asked = in_context(pool, answer_to)
            work()
            return str(asked.result())

    return await asyncio.to_thread(asks_beside)


async def in_a_step_with_another_thread_that_works(work: Working) -> str:
    @holdfast.step
    def asks_beside() -> str:
        with ThreadPoolExecutor(2) as pool:
            asked, _ = in_context(pool, answer_to), in_context(pool, work)
            return str(asked.result())

    return await asyncio.to_thread(asks_beside)


async def in_a_step_with_a_thread_of_its_own_that_works(work: Working) -> str:
    @holdfast.step
    def asks_beside() -> str:
        beside = threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True)
        beside.start()
        with ThreadPoolExecutor(1) as pool:
            return str(in_context(pool, answer_to).result())

    return await asyncio.to_thread(asks_beside)


async def in_an_event_loop_of_its_own_with_a_thread_that_works(work: Working) -> str:
    async def asks() -> str:
        loop = asyncio.get_running_loop()
        works = loop.run_in_executor(None, work)  # has not the run's context
        return (await asyncio.gather(asyncio.to_thread(answer_to), works))[0]

    @holdfast.step
    def runs_a_loop() -> str:
        return asyncio.run(asks())

    return await asyncio.to_thread(runs_a_loop)


@holdfast.workflow(name="works")
def in_a_body_that_is_a_thread_and_works(work: Working) -> str:
    with ThreadPoolExecutor(1) as pool:
        asked = in_context(pool, answer_to)
        work()
        return str(asked.result())


STAYING: list[Any] = [
    beside_a_thread_that_works,
    beside_a_thread_that_nobody_awaits,
    beside_a_socket,
    before_a_job_that_is_queued,
    in_a_step_of_a_thread_that_works_beside_it,
    in_a_step_with_another_thread_that_works,
    in_a_step_with_a_thread_of_its_own_that_works,
    in_an_event_loop_of_its_own_with_a_thread_that_works,
    in_a_body_that_is_a_thread_and_works,
]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not is_so():  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0)


def is_looked_at_and_stays(run: Execution) -> bool:
    rest.consider(run, lingered=True)
    return not run.suspending and not run.closed


@pytest.mark.parametrize("asks", STAYING)
async def test_a_run_stays_in_memory_while_something_else_goes_on(asks: Any) -> None:
    work = Working()
    if isinstance(asks, holdfast.Workflow):
        asks.fn.__defaults__ = (work,)
        workflow = asks
    else:
        workflow = as_workflow(lambda: asks(work))
    async with Environment([workflow], clock=holdfast.SystemClock(), worker_options=AT_ONCE) as env:
        run = await env.start(workflow)
        await until(work.begun.is_set)
        [found] = env.worker.runs.values()
        await until(lambda: bool(found.waits) and bool(found.portals) and found.journal.durable)
        try:
            for _ in range(50):
                await asyncio.sleep(0)
                assert is_looked_at_and_stays(found)
        finally:
            work.end()
        if asks is not before_a_job_that_is_queued:  # which is behind the one that waits
            await until(lambda: env.worker.runs == {})
        work.ended.set()
        await run.resolve("answer", "yes")
        async with asyncio.timeout(SECONDS_MAX):
            assert await run.result() == "yes"


async def test_a_run_stays_in_memory_whose_thread_gives_up_the_wait_after_a_while() -> None:
    @holdfast.step
    def gives_up() -> str:
        pool = ThreadPoolExecutor(1)
        try:
            return str(in_context(pool, answer_to).result(timeout=0.5))
        except TimeoutError:
            return "nobody"
        finally:
            pool.shutdown(wait=False)

    workflow = as_workflow(lambda: asyncio.to_thread(gives_up))
    async with Environment([workflow], clock=holdfast.SystemClock(), worker_options=AT_ONCE) as env:
        run = await env.start(workflow)
        async with asyncio.timeout(SECONDS_MAX):
            assert await run.result() == "nobody"
