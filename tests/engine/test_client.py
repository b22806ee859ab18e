"""The client: starting, asking and steering runs, and what is said when that cannot be done."""

from __future__ import annotations

import asyncio
import types
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, RunFilter, Status, WorkerOptions
from holdfast.testing import Environment
from holdfast.types import Kind

DAY = timedelta(days=1)
LEAVES_AT_ONCE = WorkerOptions(memory_wait=timedelta(0))


@holdfast.step
async def work(number: int) -> int:
    return number


@holdfast.workflow
async def works(number: int, twice: bool = False) -> int:
    return await work(number) * (2 if twice else 1)


@holdfast.workflow
async def sleeps(days: int = 1) -> int:
    await work(0)
    await holdfast.sleep(days * DAY)
    return await work(days)


# Start


async def test_the_same_id_started_twice_is_one_run_with_one_result() -> None:
    async with Environment([works]) as env:
        app = env.app.with_options(id="one")
        first = await app.start(works, 4)
        second = await app.start(works, 4)
        assert first.id == second.id == "one"
        assert await first.result() == await second.result() == 4
        assert await (await app.start(works, 4)).result() == 4  # also when it has ended
    assert env.started == ["/work#0"]


async def test_many_callers_at_once_get_one_run() -> None:
    async with Environment([works]) as env:
        app = env.app.with_options(id="one")
        runs = await asyncio.gather(*(app.start(works, 4) for _ in range(20)))
        assert await asyncio.gather(*(run.result() for run in runs)) == [4] * 20
    assert env.started == ["/work#0"]


async def test_an_id_used_again_with_other_arguments_is_refused() -> None:
    async with Environment([works, sleeps]) as env:
        app = env.app.with_options(id="one")
        run = await app.start(works, 4)
        for other in (app.start(works, 5), app.start(sleeps, 4)):
            with pytest.raises(holdfast.IdReused, match="'one'"):
                await other
        assert await run.result() == 4


@pytest.mark.parametrize(
    ("args", "kwargs", "complaint"),
    [
        ((), {}, "number"),
        ((1, True, 3), {}, "too many"),
        (("four",), {}, "number"),
        ((1,), {"thrice": True}, "thrice"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_and_nothing_is_written(
    args: tuple[Any, ...], kwargs: dict[str, Any], complaint: str
) -> None:
    async with Environment([works]) as env:
        with pytest.raises(holdfast.BadArguments, match=complaint):
            await env.app.start(works, *args, **kwargs)
        assert await env.app.list() == []


async def test_a_workflow_that_is_not_listed_is_refused_with_the_cure() -> None:
    async with Environment([works]) as env:
        with pytest.raises(holdfast.UnknownWorkflow, match="workflows="):
            await env.start(sleeps)
        with pytest.raises(holdfast.HoldfastError, match=r"@holdfast\.workflow"):
            await env.app.start(work, 1)  # type: ignore[call-overload]


async def test_a_module_lists_its_workflows_and_two_of_one_name_are_refused() -> None:
    module = types.ModuleType("agents")
    module.works, module.sleeps = works, sleeps  # type: ignore[attr-defined]
    assert set(Holdfast(":memory:", workflows=[module]).workflows) == {"works", "sleeps"}

    @holdfast.workflow(name="works")
    async def impostor() -> None: ...

    with pytest.raises(holdfast.BadArguments, match="two workflows"):
        Holdfast(":memory:", workflows=[module, impostor])


async def test_an_app_that_is_not_open_says_so() -> None:
    app = Holdfast("sqlite://:memory:", workflows=[works])
    with pytest.raises(holdfast.NotOpen):
        await app.start(works, 1)
    with pytest.raises(holdfast.NotOpen):
        await app.get("one").result()


async def test_a_result_that_cannot_be_encoded_fails_the_run() -> None:
    @holdfast.workflow
    async def returns_a_lock() -> Any:
        return asyncio.Lock()

    async with Environment([returns_a_lock]) as env:
        with pytest.raises(holdfast.RunFailed) as failed:
            await env.result(await env.start(returns_a_lock))
    assert isinstance(failed.value.__cause__, holdfast.NotEncodable)


# Runs that are not there, or over


async def test_a_run_that_does_not_exist_is_a_named_error_everywhere() -> None:
    async with Environment([works]) as env:
        run = env.app.get("nobody")
        for call in (
            run.result(),
            run.status(),
            run.why(),
            run.history(),
            run.cancel(),
            run.pause(),
            run.resume(),
            run.rerun(),
            run.send("hello"),
            run.resolve("answer", 1),
            run.fork(before="/work#0"),
        ):
            with pytest.raises(holdfast.UnknownRun, match="'nobody'"):
                await call


async def test_a_run_that_has_ended_takes_nothing_more() -> None:
    async with Environment([works]) as env:
        run = await env.start(works, 1)
        await run.result()
        for call in (run.cancel(), run.pause(), run.send("hello"), run.resolve("answer", 1)):
            with pytest.raises(holdfast.AlreadyEnded):
                await call
        with pytest.raises(holdfast.NotResumable):
            await run.resume()
        with pytest.raises(holdfast.NotResumable):
            await run.rerun()
        assert await run.result() == 1


# Cancel


async def test_a_cancelled_run_may_clean_up_with_steps() -> None:
    @holdfast.workflow
    async def cleans_up() -> None:
        try:
            await holdfast.sleep(DAY)
        finally:
            await work(1)

    async with Environment([cleans_up], worker_options=LEAVES_AT_ONCE) as env:
        run = await env.start(cleans_up)
        await env.settle()
        await run.cancel()
        await run.cancel()  # saying it twice changes nothing
        with pytest.raises(holdfast.RunCancelled):
            await env.result(run)
    assert env.started == ["/work#0"]


async def test_a_run_that_ignores_its_cancellation_still_ends_as_cancelled() -> None:
    @holdfast.workflow
    async def ignores() -> str:
        try:
            await holdfast.sleep(DAY)
        except asyncio.CancelledError:
            pass
        return "went on"

    async with Environment([ignores]) as env:
        run = await env.start(ignores)
        await env.settle()
        await run.cancel()
        with pytest.raises(holdfast.RunCancelled):
            await env.result(run)


async def test_a_run_can_be_cancelled_before_it_begins() -> None:
    async with Environment([works]) as env:
        run = await env.app.with_options(delay=DAY).start(works, 1)
        await run.cancel()
        await env.settle()
        assert await run.status() is Status.CANCELLED
    assert env.started == []


# Pause and resume


async def test_a_run_that_is_paused_and_resumed_begins_when_it_was_to() -> None:
    async with Environment([works]) as env:
        run = await env.app.with_options(delay=DAY).start(works, 1)
        await run.pause()
        await env.advance(DAY / 2)
        await run.resume()
        await env.settle()
        assert await run.status() is Status.PENDING
        assert env.started == []
        await env.advance(DAY / 2)
        assert await run.status() is Status.COMPLETED


async def test_a_paused_run_stops_at_the_next_step_and_goes_on_when_resumed() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @holdfast.step
    async def slow() -> None:
        begun.set()
        await go_on.wait()

    @holdfast.workflow
    async def steps() -> int:
        await slow()
        return await work(1) + await work(2)

    async with Environment([steps]) as env:
        run = await env.start(steps)
        await begun.wait()
        await run.pause()
        (execution,) = env.worker.runs.values()
        while not execution.pausing:  # noqa: ASYNC110  nobody tells that it has come
            await asyncio.sleep(0)
        go_on.set()
        await env.settle()
        assert await run.status() is Status.PAUSED
        assert f"holdfast resume {run.id}" in await run.why()
        assert env.started == ["/slow#0"]
        await env.advance(DAY)
        await env.crash()
        assert await run.status() is Status.PAUSED
        await run.resume()
        assert await env.result(run) == 3
        with pytest.raises(holdfast.NotResumable):
            await run.resume()
    assert env.started == ["/slow#0", "/work#0", "/work#1"]


async def test_a_paused_run_does_not_wake_up_for_a_timer() -> None:
    async with Environment([sleeps], worker_options=LEAVES_AT_ONCE) as env:
        run = await env.start(sleeps)
        await env.settle()
        await run.pause()
        await env.advance(3 * DAY)
        assert await run.status() is Status.PAUSED
        await run.resume()
        assert await env.result(run) == 1


async def test_a_paused_run_can_be_cancelled() -> None:
    async with Environment([sleeps]) as env:
        run = await env.start(sleeps)
        await env.settle()
        await run.pause()
        await env.settle()
        await run.cancel()
        await env.settle()
        assert await run.status() is Status.CANCELLED


# Rerun and fork


async def test_a_failed_run_goes_on_from_the_step_that_failed() -> None:
    down = True

    @holdfast.step
    async def fails() -> int:
        if down:
            raise ValueError("down")
        return 10

    @holdfast.workflow
    async def counts() -> int:
        return await work(1) + await fails() + await work(2)

    async with Environment([counts]) as env:
        run = await env.start(counts)
        with pytest.raises(holdfast.RunFailed, match="down"):
            await env.result(run)
        assert f"holdfast rerun {run.id}" in await run.why()
        down = False
        assert await env.result(await run.rerun()) == 13
    assert env.started == ["/work#0", "/fails#0", "/fails#0", "/work#1"]


async def test_a_fork_begins_with_what_the_other_run_did_before_a_step() -> None:
    @holdfast.workflow
    async def chain() -> list[int]:
        return [await work(1), await work(2), await work(3)]

    async with Environment([chain]) as env:
        run = await env.start(chain)
        await env.result(run)
        env.started.clear()
        fork = await run.fork(before="/work#1", id="again")
        assert fork.id == "again"
        assert await env.result(fork) == [1, 2, 3]
        assert env.started == ["/work#1", "/work#2"]
        with pytest.raises(holdfast.BadArguments, match="no step"):
            await run.fork(before="/nothing#0")
        with pytest.raises(holdfast.IdReused):
            await run.fork(before="/work#1", id="again")


async def test_a_fork_of_a_waiting_run_has_promises_of_its_own() -> None:
    @holdfast.workflow
    async def asks() -> list[int]:
        return [await holdfast.promise("a", int), await work(1), await holdfast.promise("b", int)]

    async with Environment([asks]) as env:
        run = await env.start(asks)
        await run.resolve("a", 1, early=True)
        await env.settle()
        fork = await run.fork(before="/work#0")
        await env.settle()
        await fork.resolve("b", 20)
        await run.resolve("b", 2)
        assert await env.result(fork) == [1, 1, 20]
        assert await env.result(run) == [1, 1, 2]


# Ask


async def test_list_takes_one_filter() -> None:
    async with Environment([works, sleeps]) as env:
        for number in range(3):
            await (await env.app.with_options(id=f"w-{number}").start(works, number)).result()
        app = env.app.with_options(id="s-0", session="user", queue="slow")
        run = await app.start(sleeps, 1)
        await env.settle()

        async def ids(**which: Any) -> list[str]:
            return [row.id for row in await env.app.list(RunFilter(**which))]

        assert await ids() == ["s-0", "w-2", "w-1", "w-0"]
        assert await ids(newest_first=False, limit=2) == ["w-0", "w-1"]
        assert await ids(workflow="sleeps") == await ids(session="user") == [run.id]
        assert await ids(queue="slow") == await ids(id_prefix="s-") == [run.id]
        assert await ids(status=frozenset({Status.COMPLETED})) == ["w-2", "w-1", "w-0"]
        assert await ids(created_after=env.clock.now()) == []


async def test_history_shows_every_entry_with_input_and_output() -> None:
    async with Environment([works]) as env:
        run = await env.start(works, 4)
        await run.result()
        claim, step, end = await run.history()
    assert [claim.kind, step.kind, end.kind] == [Kind.CLAIM, Kind.STEP, Kind.END]
    assert (step.input, step.output) == (b'{"number":4}', b"4")


async def test_why_names_what_failed_last_and_when_it_is_tried_again() -> None:
    @holdfast.step(retry=holdfast.Retry(backoff=DAY, max_delay=DAY, jitter=0))
    async def fails() -> None:
        raise ConnectionError("no route")

    @holdfast.workflow
    async def tries() -> None:
        await fails()

    async with Environment([tries]) as env:
        run = await env.start(tries)
        await env.settle()
        why = await run.why()
    assert "ConnectionError (no route) in /fails#0, try 1" in why
    assert "the next try is due 2026-01-02 00:00:00 UTC" in why
