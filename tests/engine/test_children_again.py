"""Children that are awaited again: after a rerun, by the next try of a step, after continue_as."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Retry, RunFilter, Status
from holdfast.testing import Environment, crash_everywhere

DAY = timedelta(days=1)
TRIES = Retry(attempts=3, backoff=timedelta(minutes=1), retry_on=(holdfast.RunFailed,))

broken: set[str] = set()
executed: list[str] = []


@pytest.fixture(autouse=True)
def afresh() -> None:
    broken.clear()
    executed.clear()


@holdfast.step(retry=Retry(attempts=1))
async def work(name: str) -> str:
    executed.append(name)
    if name in broken:
        raise ValueError(f"{name} is broken")
    return name


@holdfast.workflow
async def quick(name: str) -> str:
    return await work(name)


@holdfast.workflow
async def slow(name: str) -> str:
    await holdfast.sleep(DAY)
    return await work(name)


@holdfast.workflow
async def both() -> list[str]:
    children = holdfast.child(quick, "one"), holdfast.child(slow, "two")
    return list(await asyncio.gather(*children))


async def failed_run(env: Environment, broken_ones: set[str]) -> holdfast.Run[list[str]]:
    """The parent has failed with one child; then the other ends, one way or the other."""
    broken.update(broken_ones)
    run = await env.start(both)
    with pytest.raises(holdfast.RunFailed, match="one is broken"):
        await env.result(run)
    assert (await env.app.row(run.id)).status is Status.FAILED
    await env.advance(2 * DAY)
    assert not await env.app.list(RunFilter(status=frozenset({Status.WAITING, Status.RUNNING})))
    broken.clear()
    return run


async def test_a_rerun_hears_of_a_child_that_completed_when_the_run_had_failed() -> None:
    async with Environment([both, quick, slow]) as env:
        run = await failed_run(env, {"one"})
        assert await env.result(await run.rerun()) == ["one", "two"]
        assert executed == ["one", "two", "one"]


async def test_a_rerun_also_reruns_a_child_that_failed_when_the_run_had_failed() -> None:
    async with Environment([both, quick, slow]) as env:
        run = await failed_run(env, {"one", "two"})
        assert await env.result(await run.rerun()) == ["one", "two"]
        # Which of the two children is claimed first is nobody's promise.
        assert executed[:2] == ["one", "two"]
        assert sorted(executed[2:]) == ["one", "two"]


async def test_a_rerun_fails_again_if_its_child_does() -> None:
    async with Environment([both, quick, slow]) as env:
        run = await failed_run(env, {"one"})
        broken.add("one")
        with pytest.raises(holdfast.RunFailed, match="one is broken"):
            await env.result(await run.rerun())
        broken.clear()
        assert await env.result(await run.rerun()) == ["one", "two"]


@holdfast.workflow
async def family() -> list[list[str]]:
    children = holdfast.child(both), holdfast.child(both)
    return list(await asyncio.gather(*children))


@pytest.mark.parametrize("meanwhile", ["nothing", "they go on", "they fail again"])
async def test_a_rerun_that_dies_on_its_way_is_repeated(
    meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    reopened = 0
    async with Environment([family, both, quick, slow]) as env:
        store = env.app.store
        reopen = store.rerun

        async def dies_afterwards(*args: Any) -> None:
            nonlocal reopened
            await reopen(*args)
            reopened += 1
            raise Died

        broken.update({"one", "two"})
        run = await env.start(family)
        with pytest.raises(holdfast.RunFailed):
            await env.result(run)
        await env.advance(2 * DAY)
        monkeypatch.setattr(store, "rerun", dies_afterwards)
        if meanwhile != "they fail again":
            broken.clear()
        while await run.status() is Status.FAILED:
            assert reopened < 10, "of a family of seven"
            with pytest.raises(Died):
                await run.rerun()
            if meanwhile != "nothing":
                await env.advance(2 * DAY)
            broken.clear()
        assert await env.result(run) == [["one", "two"], ["one", "two"]]


async def test_a_rerun_hears_of_a_child_that_it_awaited_because_it_failed() -> None:
    @holdfast.workflow
    async def tidies_up() -> str:
        try:
            done = await work("done")
        except ValueError:
            await holdfast.child(quick, "tidied")
            raise
        return done + " and " + await holdfast.child(quick, "tidied")

    broken.add("done")
    async with Environment([tidies_up, quick]) as env:
        run = await env.start(tidies_up)
        with pytest.raises(holdfast.RunFailed):
            await env.result(run)
        broken.clear()
        assert await env.result(await run.rerun()) == "done and tidied"
        assert executed == ["done", "tidied", "done"]


@holdfast.step(retry=TRIES)
async def persistent() -> str:
    return await holdfast.child(quick.with_options(id="the-child"), "done")


@holdfast.workflow
async def persists() -> str:
    try:
        return await persistent()
    except holdfast.RunFailed as error:
        assert isinstance(error.__cause__, ValueError)
        return str(error)


async def test_the_next_try_of_a_step_gets_the_same_failure_of_its_child() -> None:
    broken.add("done")
    async with Environment([persists, quick]) as env:
        assert "done is broken" in await env.result(await env.start(persists))
        assert executed.count("done") == 1


async def test_so_it_does_after_a_crash_anywhere() -> None:
    broken.add("done")
    report = await crash_everywhere(persists, workflows=[quick])
    assert "done is broken" in report.result


async def test_a_child_that_was_rerun_between_two_tries_is_heard_of() -> None:
    broken.add("done")
    async with Environment([persists, quick]) as env:
        run = await env.start(persists)
        await env.settle()
        assert (await env.app.row("the-child")).status is Status.FAILED
        broken.clear()
        await env.app.rerun("the-child")
        await env.settle()
        assert await env.result(run) == "done"


@holdfast.workflow
async def generations(number: int, name: str) -> str:
    if number > 1:
        await work("before")  # so that the child is awaited at another place
    workflow = quick if name == "quick" else slow
    child = holdfast.child(workflow.with_options(id="shared"), name)
    winner, value = await holdfast.race(child=child, late=holdfast.sleep(DAY / 3))
    if number == 4:
        return f"{number}: {value if winner == 'child' else await child}"
    holdfast.continue_as(number + 1, name)
    raise AssertionError


@pytest.mark.parametrize("name", ["quick", "slow"])
async def test_the_next_generation_awaits_the_child_of_the_one_before(name: str) -> None:
    async with Environment([generations, quick, slow]) as env:
        assert await env.result(await env.start(generations, 1, name)) == f"4: {name}"
        assert executed.count(name) == 1


@pytest.mark.parametrize("name", ["quick", "slow"])
async def test_so_it_does_whatever_dies(name: str) -> None:
    report = await crash_everywhere(generations, 1, name, workflows=[quick, slow])
    assert report.result == f"4: {name}"


async def test_a_child_that_has_ended_is_awaited_twice_by_its_id() -> None:
    @holdfast.workflow
    async def twice() -> list[str]:
        child = quick.with_options(id="the-child")
        return [await holdfast.child(child, "once"), await holdfast.child(child, "once")]

    async with Environment([twice, quick]) as env:
        assert await env.result(await env.start(twice)) == ["once", "once"]
        assert executed == ["once"]


async def test_a_rerun_that_comes_late_does_not_cut_a_journal_that_went_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @holdfast.workflow
    async def in_turn() -> list[str]:
        return [await work(name) for name in ("first", "second", "third")]

    async with Environment([in_turn]) as env:
        run = await env.start(in_turn)
        broken.add("first")
        with pytest.raises(holdfast.RunFailed):
            await env.result(run)
        store = env.app.store
        reopen = store.rerun

        async def somebody_else_was_quicker(*args: Any) -> Any:
            monkeypatch.setattr(store, "rerun", reopen)
            broken.clear()
            broken.add("third")
            with pytest.raises(holdfast.RunFailed, match="third"):
                await env.result(await run.rerun())
            return await reopen(*args)

        monkeypatch.setattr(store, "rerun", somebody_else_was_quicker)
        with pytest.raises(holdfast.NotResumable):
            await run.rerun()
        broken.clear()
        assert await env.result(await run.rerun()) == ["first", "second", "third"]
        assert executed == ["first", "first", "second", "third", "third"]
