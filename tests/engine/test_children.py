"""Child runs: awaited or detached, listed here or served elsewhere."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import holdfast
from holdfast import RunFilter, Status, WorkerOptions
from holdfast.testing import Environment, crash_everywhere

DAY = timedelta(days=1)
LEAVES_AT_ONCE = WorkerOptions(memory_wait=timedelta(0))


@holdfast.step
async def square(number: int) -> int:
    return number * number


@holdfast.workflow
async def squares(number: int) -> int:
    if number < 0:
        raise ValueError("negative")
    await holdfast.sleep(DAY)
    return await square(number)


@holdfast.workflow
async def sums(upto: int) -> int:
    children = [holdfast.child(squares, number) for number in range(upto)]
    return sum(await asyncio.gather(*children))


async def test_children_are_runs_of_their_own_and_survive_a_crash_anywhere() -> None:
    report = await crash_everywhere(sums, 3, workflows=[squares])
    assert report.result == 0 + 1 + 4


async def test_a_parent_that_only_waits_for_children_leaves_memory() -> None:
    async with Environment([sums, squares], worker_options=LEAVES_AT_ONCE) as env:
        run = await env.start(sums, 2)
        await env.settle()
        assert env.worker.runs == {}
        row = await env.app.row(run.id)
        assert row.status is Status.WAITING and "child run" in (row.reason or "")
        rows = await env.app.list(RunFilter(parent=run.id))
        assert {row.workflow for row in rows} == {"squares"} and len(rows) == 2
        assert await env.result(run) == 1


async def test_the_failure_of_a_child_is_an_error_in_its_parent() -> None:
    @holdfast.workflow
    async def hopes() -> str:
        try:
            await holdfast.child(squares, -1)
        except holdfast.RunFailed as error:
            assert isinstance(error.__cause__, ValueError)
            return str(error)
        return "fine"

    report = await crash_everywhere(hopes, workflows=[squares])
    assert "negative" in report.result


async def test_a_cancelled_child_is_an_error_in_its_parent() -> None:
    @holdfast.workflow
    async def hopes() -> str:
        try:
            await holdfast.child(squares.with_options(id="the-child"), 1)
        except holdfast.RunCancelled as error:
            return str(error)
        return "fine"

    async with Environment([hopes, squares]) as env:
        run = await env.start(hopes)
        await env.settle()
        await env.app.cancel("the-child")
        assert "'the-child' was cancelled" in await env.result(run)


async def test_a_child_that_lost_a_race_goes_on() -> None:
    @holdfast.workflow
    async def impatient() -> str:
        child = holdfast.child(squares.with_options(id="the-child"), 3)
        winner, _ = await holdfast.race(child=child, late=holdfast.sleep(DAY / 2))
        return winner

    async with Environment([impatient, squares]) as env:
        assert await env.result(await env.start(impatient)) == "late"
        assert await env.result(env.app.get("the-child")) == 9


async def test_a_detached_run_is_started_once_and_goes_its_own_way() -> None:
    @holdfast.workflow
    async def starts_another() -> str:
        id = await holdfast.start(squares, 4)
        await holdfast.sleep(DAY / 2)
        return id

    async with Environment([starts_another, squares]) as env:
        run = await env.start(starts_another)
        await env.settle()
        await env.crash()
        id = await env.result(run)
        assert (await env.app.row(id)).parent is None
        assert await env.result(env.app.get(id)) == 16
        assert len(await env.app.list(RunFilter(workflow="squares"))) == 1
    await crash_everywhere(starts_another, workflows=[squares])


async def test_a_detached_run_takes_its_options_along() -> None:
    @holdfast.workflow
    async def starts_another() -> str:
        options = {"delay": DAY, "priority": 7, "deadline": 3 * DAY, "session": "s"}
        return await holdfast.start(squares.with_options(id="other", **options), 4)

    async with Environment([starts_another, squares]) as env:
        assert await env.result(await env.start(starts_another)) == "other"
        row = await env.app.row("other")
        assert (row.priority, row.session, row.status) == (7, "s", Status.PENDING)
        assert row.ready_at == row.created_at + DAY // timedelta(microseconds=1)
        assert row.deadline_at == row.created_at + 3 * DAY // timedelta(microseconds=1)


async def test_a_detached_run_can_be_started_by_a_def_workflow() -> None:
    @holdfast.workflow
    def starts_another() -> str:
        return holdfast.start(squares, 4).result()

    async with Environment([starts_another, squares]) as env:
        id = await env.result(await env.start(starts_another))
        assert await env.result(env.app.get(id)) == 16


async def test_a_child_with_an_id_of_other_arguments_is_refused() -> None:
    @holdfast.workflow
    async def collides() -> int:
        return await holdfast.child(squares.with_options(id="taken"), 5)

    async with Environment([collides, squares]) as env:
        await env.app.with_options(id="taken").start(squares, 1)
        with pytest.raises(holdfast.RunFailed) as failed:
            await env.result(await env.start(collides))
        assert isinstance(failed.value.__cause__, holdfast.IdReused)


async def test_a_child_with_the_id_of_a_run_that_is_not_its_own_is_refused() -> None:
    @holdfast.workflow
    async def adopts() -> int:
        return await holdfast.child(squares.with_options(id="taken"), 5)

    async with Environment([adopts, squares]) as env:
        await env.app.with_options(id="taken").start(squares, 5)
        with pytest.raises(holdfast.RunFailed, match="is no child of run") as failed:
            await env.result(await env.start(adopts))
        assert isinstance(failed.value.__cause__, holdfast.IdReused)


async def test_a_workflow_that_another_codebase_serves_is_called_by_its_stub() -> None:
    @holdfast.remote("squares")
    async def elsewhere(number: int) -> int: ...  # type: ignore[empty-body]

    @holdfast.workflow
    async def calls_elsewhere() -> int:
        return await holdfast.child(elsewhere, 6)

    async with Environment([calls_elsewhere, elsewhere]) as env:
        run = await env.start(calls_elsewhere)
        await env.settle()
        (row,) = await env.app.list(RunFilter(workflow="squares"))
        assert row.status is Status.PENDING  # nobody here serves it
        await env.die()
        async with Environment([squares], store=env.store, clock=env.clock) as other:
            assert await other.result(other.app.get(row.id)) == 36
        await env.app.open()
        assert await env.result(run) == 36


async def test_arguments_of_a_stub_are_checked_where_it_is_called() -> None:
    @holdfast.remote("squares")
    async def elsewhere(number: int) -> int: ...  # type: ignore[empty-body]

    async with Environment([elsewhere]) as env:
        with pytest.raises(holdfast.BadArguments):
            await env.app.start(elsewhere, "six")  # type: ignore[call-overload]
        assert await env.app.list() == []


async def test_cancelling_a_parent_leaves_its_child_alone() -> None:
    async with Environment([sums, squares]) as env:
        run = await env.start(sums, 1)
        await env.settle()
        await run.cancel()
        await env.settle()
        assert await run.status() is Status.CANCELLED
        (child,) = await env.app.list(RunFilter(workflow="squares"))
        assert await env.result(env.app.get(child.id)) == 0


# Refused


@holdfast.workflow
async def copes(where: str) -> str:
    """Handles the refusal of a child, and is replayed after that."""
    options = {"id": "taken"} if where == "id" else {"session": "s", "on_busy": "reject"}
    try:
        result: str | int = await holdfast.child(squares.with_options(**options), 5)
    except (holdfast.IdReused, holdfast.SessionBusy) as error:
        result = f"{type(error).__name__}: {error}"
        await square(5)
    await holdfast.sleep(2 * DAY)
    return str(result)


@pytest.mark.parametrize(("where", "why"), [("id", "IdReused"), ("session", "SessionBusy")])
async def test_a_refused_child_stays_refused_when_the_run_is_replayed(where: str, why: str) -> None:
    async with Environment([copes, squares], worker_options=LEAVES_AT_ONCE) as env:
        other = await env.app.with_options(id="taken", session="s").start(squares, 1)
        run = await env.start(copes, where)
        await env.settle()
        await env.crash()
        assert await env.result(other) == 1  # by now the session is free
        assert (await env.result(run)).startswith(why)
        journal = await env.store.journal((await env.app.row(run.id)).key)
        (refused,) = [entry for entry in journal if "child:squares" in entry.key]
        assert refused.failed and refused.output
        assert len(await env.app.list(RunFilter(workflow="squares"))) == 1


async def test_a_refusal_survives_a_crash_anywhere() -> None:
    @holdfast.workflow
    async def twice() -> list[str]:
        one = squares.with_options(id="the-child")
        children = holdfast.child(one, 2), holdfast.child(one, 3)
        results = await asyncio.gather(*children, return_exceptions=True)
        await square(7)
        await holdfast.sleep(DAY)
        return [type(result).__name__ for result in results]

    report = await crash_everywhere(twice, workflows=[squares])
    assert report.result == ["int", "IdReused"]


async def test_a_step_that_awaits_a_refused_child_is_tried_again() -> None:
    @holdfast.step(
        retry=holdfast.Retry(backoff=DAY, max_delay=DAY, retry_on=(holdfast.SessionBusy,))
    )
    async def waits_its_turn() -> int:
        child = squares.with_options(session="s", on_busy="reject")
        return await holdfast.child(child, 3)

    @holdfast.workflow
    async def polite() -> int:
        return await waits_its_turn()

    async with Environment([polite, squares]) as env:
        await env.app.with_options(session="s").start(squares, 1)
        assert await env.result(await env.start(polite)) == 9


async def test_a_child_that_is_awaited_elsewhere_in_the_run_is_refused() -> None:
    @holdfast.workflow
    async def twice() -> int:
        one = squares.with_options(id="the-child")
        return sum(await asyncio.gather(holdfast.child(one, 2), holdfast.child(one, 2)))

    async with Environment([twice, squares]) as env:
        with pytest.raises(holdfast.RunFailed, match="awaited already, at /child:squares#0"):
            await env.result(await env.start(twice))


async def test_a_rerun_starts_a_child_that_was_refused() -> None:
    @holdfast.workflow
    async def insists() -> int:
        child = squares.with_options(session="s", on_busy="reject")
        return await holdfast.child(child, 3)

    async with Environment([insists, squares]) as env:
        other = await env.app.with_options(session="s").start(squares, 1)
        run = await env.start(insists)
        with pytest.raises(holdfast.RunFailed, match="busy"):
            await env.result(run)
        await env.result(other)
        assert await env.result(await run.rerun()) == 9


# Deep


@holdfast.workflow
async def nests(depth: int) -> int:
    if not depth:
        await holdfast.sleep(DAY)
        return 0
    deeper = await asyncio.gather(*(holdfast.child(nests, d) for d in (depth - 1, 0)))
    return 1 + sum(deeper)


async def test_children_of_children_get_ids_that_are_not_too_long() -> None:
    async with Environment([nests], worker_options=LEAVES_AT_ONCE) as env:
        run = await env.app.with_options(id="x" * 500).start(nests, 40)
        assert await env.result(run) == 40
        rows = await env.app.list(RunFilter(workflow="nests", limit=1000))
        assert len(rows) == len({row.id for row in rows}) == 81
        assert max(len(row.id) for row in rows) <= 512


async def test_long_ids_are_the_same_whatever_dies() -> None:
    @holdfast.workflow(name="long" * 125)
    async def named_at_length() -> int:
        return await square(2)

    @holdfast.workflow
    async def calls_it() -> int:
        return await holdfast.child(named_at_length)

    report = await crash_everywhere(calls_it, workflows=[named_at_length])
    assert report.result == 4
