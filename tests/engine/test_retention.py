"""Ended runs are deleted after a while, and their ids stay taken for a while longer."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.errors import BadArguments, BadValue, IdRetired, SessionBusy, UnknownRun
from holdfast.testing import Environment
from holdfast.testing.kept_store import KeptStore
from holdfast.worker import upkeep
from holdfast.worker.options import Retention, WorkerOptions


@holdfast.step
async def note(what: str) -> str:
    return what


@holdfast.workflow
async def short(what: str) -> str:
    return await note(what)


@holdfast.workflow
async def long(days: int) -> str:
    await holdfast.sleep(timedelta(days=days))
    return "done"


def keeping(runs: timedelta | None, ids: timedelta = timedelta(days=1)) -> WorkerOptions:
    retention = Retention(runs=runs, ids=ids)
    return WorkerOptions(memory_wait=timedelta(0), retention=retention)


async def test_ended_runs_are_deleted_by_default_and_others_are_not() -> None:
    async with Environment([short, long]) as env:
        for number in range(3):
            await (await env.app.with_options(id=f"old-{number}").start(short, "x")).result()
        sleeper = await env.start(long, 100)
        await env.advance(timedelta(days=29))
        await (await env.app.with_options(id="young").start(short, "x")).result()
        assert await env.worker.upkeep.prune() == 0
        await env.advance(timedelta(days=2))
        assert await env.worker.upkeep.prune() == 3
        with pytest.raises(UnknownRun):
            await env.app.result("old-0")
        assert await env.app.result("young") == "x"
        assert await env.result(sleeper) == "done"


async def test_more_runs_than_fit_in_a_batch_go_in_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "BATCH_RUNS", 2)
    async with Environment([short], worker_options=keeping(timedelta(0))) as env:
        for _ in range(5):
            await env.result(await env.start(short, "x"))
        await env.advance(timedelta(seconds=1))
        assert await env.worker.upkeep.prune() == 5


async def test_a_request_that_comes_again_after_its_run_was_deleted_is_not_run_again() -> None:
    options = keeping(timedelta(days=1), ids=timedelta(days=10))
    async with Environment([short], worker_options=options) as env:
        named = env.app.with_options(id="order-7")
        await (await named.start(short, "x")).result()
        await env.advance(timedelta(days=2))
        assert await env.worker.upkeep.prune() == 1
        with pytest.raises(IdRetired, match=r"'order-7' ended \(completed\) at 2026-01-01"):
            await named.start(short, "x")
        assert len(env.started) == 1
        await env.advance(timedelta(days=11))
        assert await (await named.start(short, "x")).result() == "x"


async def test_runs_can_be_kept_for_ever() -> None:
    async with Environment([short], worker_options=keeping(None)) as env:
        await env.result(await env.start(short, "x"))
        await env.advance(timedelta(days=10_000))
        assert await env.worker.upkeep.prune() == 0


class Watched(KeptStore):
    def __init__(self) -> None:
        super().__init__()
        self.deleted = asyncio.Event()

    async def prune(self, *args: Any, **kwargs: Any) -> int:
        count = await self._kept.prune(*args, **kwargs)
        if count:
            self.deleted.set()
        return count


async def test_a_worker_deletes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(upkeep, "EVERY_SECONDS", 0.001)
    store = Watched()
    async with Environment([short], worker_options=keeping(timedelta(0)), store=store) as env:
        run = await env.start(short, "x")
        await env.result(run)
        await env.advance(timedelta(seconds=1))
        await asyncio.wait_for(store.deleted.wait(), 120)
        assert await env.app.store.get(run.id) is None
    await store.discard()


@holdfast.workflow
async def turn(wait: bool) -> list[str]:
    chat = holdfast.session()
    chat.append("hello")
    if wait:
        await holdfast.promise("answer", int)
    return chat.messages


async def test_sessions_are_kept_for_ever_by_default() -> None:
    async with Environment([turn]) as env:
        chat = env.app.with_options(session="ann")
        await (await chat.start(turn, False)).result()
        await env.advance(timedelta(days=10_000))
        assert await env.worker.upkeep.prune() == 1
        assert await env.worker.upkeep.prune_sessions() == 0
        assert await (await chat.start(turn, False)).result() == ["hello"] * 2


async def test_idle_sessions_are_deleted_if_so_told_and_those_that_wait_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "BATCH_SESSIONS", 2)
    retention = Retention(sessions=timedelta(days=90))
    options = WorkerOptions(memory_wait=timedelta(0), retention=retention)
    async with Environment([turn], worker_options=options) as env:
        for name in ("ann", "bob", "eve"):
            await (await env.app.with_options(session=name).start(turn, False)).result()
        patient = await env.app.with_options(session="patient").start(turn, True)
        await env.advance(timedelta(days=89))
        assert await env.worker.upkeep.prune_sessions() == 0
        await (await env.app.with_options(session="eve").start(turn, False)).result()
        await env.advance(timedelta(days=2))
        assert await env.worker.upkeep.prune_sessions() == 2
        for name, count in (("ann", 1), ("bob", 1), ("eve", 3)):
            run = await env.app.with_options(session=name).start(turn, False)
            assert await run.result() == ["hello"] * count
        await env.app.resolve(patient.id, "answer", 1)
        assert await patient.result() == ["hello"]


async def test_a_session_is_deleted_by_hand_but_not_under_a_run() -> None:
    async with Environment([turn]) as env:
        chat = env.app.with_options(session="ann")
        run = await chat.start(turn, True)
        with pytest.raises(SessionBusy, match=run.id):
            await env.app.delete_session("ann")
        await env.app.resolve(run.id, "answer", 1, early=True)
        assert await run.result() == ["hello"]
        assert await env.app.delete_session("ann")
        assert not await env.app.delete_session("ann")
        assert await (await chat.start(turn, False)).result() == ["hello"]
        with pytest.raises(BadValue):
            await env.app.delete_session("\0")


@pytest.mark.parametrize("bad", [{name: -timedelta(1)} for name in ("runs", "ids", "sessions")])
def test_negative_times_are_refused(bad: dict[str, timedelta]) -> None:
    with pytest.raises(BadArguments, match="negative"):
        Retention(**bad)
