"""Code as people write it, odd errors, callables and places: it replays or is refused by name."""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.testing import Environment, crash_everywhere

ONCE = holdfast.Retry(attempts=1)


@holdfast.step
async def note(what: str) -> str:
    return what


# Errors


class Refused(Exception):
    """Carries something that cannot be kept, as errors of HTTP clients do."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.response = object()


@holdfast.step(retry=ONCE)
async def refused() -> None:
    raise Refused(404)


@holdfast.workflow
async def looks_at_the_error() -> str:
    try:
        await refused()
    except Refused as error:
        return await note(str(getattr(error, "response", "lost")))
    return "not refused"


async def test_a_body_sees_the_same_error_live_and_on_replay() -> None:
    await crash_everywhere(looks_at_the_error)


class Odd(BaseException):
    pass


@holdfast.step
async def raises_a_base_exception() -> None:
    raise Odd("odd")


@holdfast.step
async def cancels_itself() -> None:
    raise asyncio.CancelledError("by itself")


@holdfast.workflow
async def survives_odd_exceptions() -> list[str]:
    seen = []
    try:
        await raises_a_base_exception()
    except Odd as error:
        seen.append(await note(repr(error)))
    try:
        await cancels_itself()
    except asyncio.CancelledError:
        seen.append(await note("cancelled"))
    return seen


async def test_a_step_that_ends_with_a_base_exception_has_an_outcome_on_record() -> None:
    report = await crash_everywhere(survives_odd_exceptions)
    assert report.result == ["Odd('odd')", "cancelled"]


@holdfast.workflow
async def survives_odd_exceptions_beside_others() -> list[str]:
    found = await asyncio.gather(
        note("beside"), raises_a_base_exception(), cancels_itself(), return_exceptions=True
    )
    return [await note(type(one).__name__) for one in found]


async def test_a_base_exception_of_one_of_many_is_replayed_in_its_turn() -> None:
    report = await crash_everywhere(survives_odd_exceptions_beside_others)
    assert report.result == ["str", "Odd", "CancelledError"]


@holdfast.workflow
async def awaits_a_task_it_cancelled() -> None:
    task = asyncio.create_task(note("never"))
    task.cancel()
    await task


async def test_a_body_that_ends_with_a_cancellation_of_its_own_fails() -> None:
    async with Environment([awaits_a_task_it_cancelled]) as env:
        run = await env.start(awaits_a_task_it_cancelled)
        with pytest.raises(holdfast.RunFailed, match="CancelledError"):
            await run.result()


@holdfast.workflow
async def waits_for_an_answer() -> Any:
    return await holdfast.receive()


@holdfast.workflow
async def gives_up() -> None:
    body = asyncio.current_task()
    assert body is not None

    async def watch() -> None:
        await note("look")
        body.cancel()

    watching = asyncio.create_task(watch())
    await note("work")
    try:
        await asyncio.Event().wait()
    finally:
        await note("clean")
        await watching


async def test_a_body_that_its_own_code_cancels_ends_as_cancelled() -> None:
    assert (await crash_everywhere(gives_up)).crashes > 5
    async with Environment([gives_up]) as env:
        with pytest.raises(holdfast.RunCancelled):
            await env.result(await env.start(gives_up))


async def test_a_body_that_is_cancelled_from_outside_goes_on_elsewhere() -> None:
    async with Environment([waits_for_an_answer]) as env:
        run = await env.start(waits_for_an_answer)
        while not any(r.live for r in env.worker.runs.values()):  # noqa: ASYNC110
            await asyncio.sleep(0)
        (execution,) = env.worker.runs.values()
        assert execution.task is not None
        execution.task.cancel()
        await run.send("go on")
        assert await env.result(run) == "go on"
        assert execution is not env.worker.runs.get(execution.row.key)
        assert (await env.app.row(run.id)).epoch > 1


@holdfast.step
def stops_iteration() -> None:
    next(iter([]))


@holdfast.workflow
async def stops() -> None:
    await asyncio.to_thread(stops_iteration)


async def test_a_step_in_a_thread_that_raises_stop_iteration_fails() -> None:
    async with Environment([stops]) as env:
        with pytest.raises(holdfast.RunFailed, match="StopIteration"):
            await (await env.start(stops)).result()


# Callables


@holdfast.step
async def instead(number: int) -> int:
    return -number


@holdfast.step(retry=holdfast.Retry(attempts=1, fallback=instead))
async def falls_back(number: int) -> int:
    raise ConnectionError


@holdfast.workflow
async def uses_a_step_as_fallback() -> int:
    return await falls_back(3)


async def test_a_fallback_may_be_a_step_itself() -> None:
    assert (await crash_everywhere(uses_a_step_as_fallback)).result == -3


async def numbers() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("odd", [functools.partial(print), len, int, numbers, object()])
def test_what_cannot_be_a_step_is_refused_when_it_is_decorated(odd: Any) -> None:
    with pytest.raises(TypeError, match="step"):
        holdfast.step(odd)


def decorated(fn: Any) -> Any:
    @functools.wraps(fn)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await fn(*args, **kwargs)

    return wrapper


class Agent:
    @holdfast.step
    @decorated
    async def think(self, topic: str) -> str:
        return topic


@holdfast.workflow
async def thinks() -> str:
    return await Agent().think("owls")


async def test_self_is_no_part_of_a_decorated_methods_identity() -> None:
    assert (await crash_everywhere(thinks)).result == "owls"


positional = True


@holdfast.workflow
async def is_refactored() -> str:
    first = await (note("a") if positional else note(what="a"))
    await holdfast.sleep(timedelta(days=1))
    return first


async def test_naming_an_argument_that_was_positional_is_no_divergence() -> None:
    global positional
    async with Environment([is_refactored]) as env:
        positional = True
        run = await env.start(is_refactored)
        await env.settle()
        positional = False
        await env.crash()
        assert await env.result(run) == "a"


@holdfast.workflow
async def uses_another_process() -> int:
    loop = asyncio.get_running_loop()
    # Forked from here, with the threads of other tests, a process might stand still.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return await loop.run_in_executor(pool, pow, 2, 3)


async def test_work_in_another_process_is_awaited_like_work_in_a_thread() -> None:
    async with Environment([uses_another_process]) as env:
        assert await (await env.start(uses_another_process)).result() == 8


# Places


@holdfast.workflow
async def continues_in_a_task() -> None:
    async def onwards() -> None:
        holdfast.continue_as()

    await asyncio.gather(onwards())


@holdfast.workflow
async def stashes_beside_a_task() -> None:
    task = asyncio.create_task(note("x"))
    try:
        holdfast.stash(1)
    finally:
        await task


@pytest.mark.parametrize("workflow", [continues_in_a_task, stashes_beside_a_task])
async def test_a_fresh_start_from_the_wrong_place_is_refused(
    workflow: holdfast.Workflow[Any, Any],
) -> None:
    async with Environment([workflow]) as env:
        with pytest.raises(holdfast.RunFailed) as failed:
            await (await env.start(workflow)).result()
    assert isinstance(failed.value.__cause__, holdfast.BadValue)


@pytest.mark.parametrize(
    "options",
    [
        {"on_busy": "nope"},
        {"while_waiting": "zz"},
        {"durability": "x"},
        {"priority": "high"},
        {"priority": 2**31},
        {"priority": 2**70},
        {"session": ""},
        {"id": 5},
        {"id": "\ud800"},
        {"deadline": 5},
        {"deadline": timedelta.max},
        {"delay": timedelta(-1)},
        {"colour": "red"},
    ],
)
def test_a_run_option_that_makes_no_sense_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(holdfast.BadArguments, match=next(iter(options))):
        holdfast.Holdfast("sqlite://:memory:").with_options(**options)


@holdfast.workflow
async def waits_for_ever() -> None:
    await holdfast.sleep(timedelta.max)


@holdfast.workflow
async def asks_without_a_name() -> None:
    await holdfast.promise("\ud800", int)


@pytest.mark.parametrize("workflow", [waits_for_ever, asks_without_a_name])
async def test_a_wait_that_cannot_be_kept_is_refused_by_name(
    workflow: holdfast.Workflow[Any, Any],
) -> None:
    async with Environment([workflow]) as env:
        with pytest.raises(holdfast.RunFailed) as failed:
            await (await env.start(workflow)).result()
    assert isinstance(failed.value.__cause__, holdfast.BadValue)


def test_a_step_whose_name_cannot_be_stored_is_refused() -> None:
    with pytest.raises(holdfast.BadValue, match="text without lone surrogates"):
        holdfast.step(name="\ud800")(numbers_of_steps)


async def numbers_of_steps() -> int:
    return 1


# The app


@holdfast.workflow
async def simple() -> str:
    return await note("simple")


async def test_an_app_opened_twice_at_once_has_one_worker() -> None:
    app = holdfast.Holdfast("sqlite://:memory:", workflows=[simple])
    outcomes = await asyncio.gather(app.open(), app.open(), return_exceptions=True)
    try:
        assert [type(o) for o in outcomes].count(holdfast.NotOpen) == 1
        assert len(await app.workers()) == 1
    finally:
        await asyncio.gather(app.close(), app.close())


async def test_starting_a_run_from_a_body_without_an_id_is_refused() -> None:
    @holdfast.workflow
    async def starts_another() -> None:
        await app.start(simple)

    app = holdfast.Holdfast("sqlite://:memory:", workflows=[simple, starts_another])
    async with app:
        with pytest.raises(holdfast.RunFailed, match=r"holdfast\.child"):
            await (await app.start(starts_another)).result()
