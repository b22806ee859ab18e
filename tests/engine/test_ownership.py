"""Who executes a run: hand-back, take-over and fencing, with two apps of one process on one file.

Real processes and real signals are in tests/crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Status, StoreUnavailable, WorkerOptions
from holdfast.engine.task import BodyTask
from holdfast.store.base import Append, Operation, Outcome, Suspend
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing import Environment
from holdfast.testing.kept_store import KeptStore
from holdfast.types import Kind, Mail, MailKind, RunKey

SECONDS_MAX = 120


class Gate:
    """A step that the first comer begins and does not finish until it is let through."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.open = asyncio.Event()
        self.entered: list[str] = []

    async def pass_through(self) -> None:
        self.entered.append(holdfast.idempotency_key())
        self.begun.set()
        await self.open.wait()


gate = Gate()


@pytest.fixture(autouse=True)
def fresh_gate() -> None:
    global gate
    gate = Gate()


@holdfast.step
async def count(number: int) -> int:
    return number + 1


@holdfast.step
async def passes_the_gate() -> None:
    await gate.pass_through()


@holdfast.workflow
async def three_steps() -> int:
    first = await count(0)
    await passes_the_gate()
    return await count(first)


def make_app(folder: Path, **options: object) -> Holdfast:
    # A lease that outlasts the test, unless it is about leases: no machine that stalls ends it.
    options = {"lease": timedelta(hours=1), **options}
    return Holdfast(
        f"sqlite:///{folder}/runs.db",
        workflows=[three_steps],
        worker_options=WorkerOptions(**options),  # type: ignore[arg-type]
    )


async def result_of(app: Holdfast, run_id: str) -> object:
    return await asyncio.wait_for(app.result(run_id), SECONDS_MAX)


async def test_a_worker_that_closes_hands_its_runs_back_and_no_strike_is_counted(
    tmp_path: Path,
) -> None:
    first, second = make_app(tmp_path), make_app(tmp_path)
    await first.open()
    run = await first.start(three_steps)
    await gate.begun.wait()
    async with second:
        gate.begun.clear()
        await first.close(grace=timedelta(0))
        await asyncio.wait_for(gate.begun.wait(), SECONDS_MAX)
        gate.open.set()
        assert await result_of(second, run.id) == 2
        row = await second.row(run.id)
        assert (row.strikes, row.epoch) == (0, 2)
        steps = [e.key for e in await second.history(run.id) if e.kind is Kind.STEP]
    assert steps == ["/count#0", "/passes_the_gate#0", "/count#1"]
    assert len(gate.entered) == 2 and len(set(gate.entered)) == 1  # one effect, named alike


async def test_a_worker_that_closes_lets_a_running_step_end_within_the_grace_time(
    tmp_path: Path,
) -> None:
    first, second = make_app(tmp_path), make_app(tmp_path)
    await first.open()
    run = await first.start(three_steps)
    await gate.begun.wait()
    closing = asyncio.create_task(first.close(grace=timedelta(seconds=SECONDS_MAX)))
    await asyncio.sleep(0)
    gate.open.set()
    await closing
    async with second:
        assert await result_of(second, run.id) == 2
    assert len(gate.entered) == 1


async def test_a_dead_workers_runs_go_on_at_once_on_a_living_one(tmp_path: Path) -> None:
    first, second = make_app(tmp_path), make_app(tmp_path)
    await first.open()
    run = await first.start(three_steps)
    await gate.begun.wait()
    async with second:
        gate.begun.clear()
        assert first.worker is not None
        await first.worker.crash()
        await asyncio.wait_for(gate.begun.wait(), SECONDS_MAX)
        gate.open.set()
        assert await result_of(second, run.id) == 2
        assert (await second.row(run.id)).strikes == 0  # the first step was progress
    await first.close()


@pytest.mark.parametrize("verb", ["reap", "is_dead"])
async def test_a_dead_workers_runs_go_on_soon_if_the_store_was_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """And not only when somebody looks around by chance."""
    monkeypatch.setattr(SQLiteStore, "poll_seconds", 60.0)
    first, second = make_app(tmp_path), make_app(tmp_path)
    await first.open()
    run = await first.start(three_steps)
    await gate.begun.wait()
    assert first.worker is not None
    does, fails = getattr(SQLiteStore, verb), 2

    async def does_at_the_third_try(*args: object, **kwargs: object) -> object:
        nonlocal fails
        if fails:
            fails -= 1
            raise StoreUnavailable("out of reach")
        return await does(*args, **kwargs)

    await first.worker.crash()
    monkeypatch.setattr(SQLiteStore, verb, does_at_the_third_try)
    gate.open.set()
    async with second:
        assert await result_of(second, run.id) == 2
        assert fails == 0
    await first.close()


async def test_a_worker_that_was_alive_after_all_is_watched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SQLiteStore, "poll_seconds", 3600.0)
    first, second = make_app(tmp_path), make_app(tmp_path)
    await first.open()
    run = await first.start(three_steps)
    await gate.begun.wait()
    assert first.worker is not None
    reap, lives = SQLiteStore.reap, 1

    async def finds_it_alive_at_first(*args: Any, **kwargs: Any) -> object:
        nonlocal lives
        if lives:
            lives -= 1
            return None
        return await reap(*args, **kwargs)

    monkeypatch.setattr(SQLiteStore, "reap", finds_it_alive_at_first)
    await first.worker.crash()
    gate.open.set()
    async with second:
        assert await asyncio.wait_for(result_of(second, run.id), SECONDS_MAX) == 2
    await first.close()


async def test_a_superseded_worker_cannot_append_and_drops_the_run(tmp_path: Path) -> None:
    first, second = make_app(tmp_path), make_app(tmp_path)
    async with first, second:
        run = await first.start(three_steps)
        await gate.begun.wait()
        zombie = first.worker
        assert zombie is not None and len(zombie.runs) == 1
        gate.begun.clear()
        assert await second.store.reap(zombie.id, second.clock.now(), dead=True)
        assert second.worker is not None
        second.worker.wake()
        await asyncio.wait_for(gate.begun.wait(), SECONDS_MAX)  # the other one executes it now
        gate.open.set()
        assert await result_of(second, run.id) == 2
        ends = [e for e in await second.history(run.id) if e.kind is Kind.END]
        assert len(ends) == 1
        assert (await second.row(run.id)).status is Status.COMPLETED
        assert await result_of(first, run.id) == 2


@pytest.mark.parametrize("how", ["renews", "claims"])
async def test_a_worker_that_was_taken_for_dead_drops_its_runs_and_registers_anew(
    tmp_path: Path, how: str
) -> None:
    # Looked at every two seconds; or never, so that it hears of it when it looks for work.
    lease = timedelta(seconds=6) if how == "renews" else timedelta(hours=1)
    concurrency = 1 if how == "renews" else 2
    first = make_app(tmp_path, lease=lease, concurrency=concurrency)
    second = make_app(tmp_path)
    async with first, second:
        await first.start(three_steps)
        await gate.begun.wait()
        worker = first.worker
        assert worker is not None
        before = worker.id
        known = {row.id for row in await second.workers()}
        assert await second.store.reap(worker.id, second.clock.now(), dead=True)
        dropped = asyncio.Event()
        unlisten = second.store.listen(dropped.set)
        while worker.id == before or worker.id not in {row.id for row in await second.workers()}:
            dropped.clear()
            await asyncio.wait_for(dropped.wait(), SECONDS_MAX)
        unlisten()
        assert worker.id not in known
        gate.open.set()


async def test_two_workers_share_the_runs_of_one_file(tmp_path: Path) -> None:
    first = make_app(tmp_path, concurrency=1)
    second = make_app(tmp_path, concurrency=1)
    async with first, second:
        runs = [await first.start(three_steps) for _ in range(2)]
        while len(gate.entered) < 2:
            gate.begun.clear()
            await asyncio.wait_for(gate.begun.wait(), SECONDS_MAX)
        owners = {(await first.row(run.id)).owner for run in runs}
        assert first.worker is not None and second.worker is not None
        assert owners == {first.worker.id, second.worker.id}
        gate.open.set()
        assert [await result_of(first, run.id) for run in runs] == [2, 2]


class LateAnswers(KeptStore):
    """Tells of a suspension only after the run was woken again, as a busy disk may."""

    async def commit(self, operations: Sequence[Operation], *, request: str = "") -> list[Outcome]:
        outcomes = await super().commit(operations, request=request)
        for operation in operations:
            if isinstance(operation, Append) and isinstance(operation.then, Suspend):
                await self._kept.post("asks", MailKind.MESSAGE, "", b'"hello"', operation.at)
                for _ in range(50):
                    await asyncio.sleep(0)
        return outcomes


async def test_a_run_that_is_woken_before_it_knows_that_it_sleeps_is_not_lost() -> None:
    @holdfast.workflow
    async def asks() -> str:
        heard = await holdfast.receive(str)
        await passes_the_gate()
        return heard

    store = LateAnswers()
    async with Environment([asks], store=store) as env:
        run = await env.app.with_options(id="asks").start(asks)
        await asyncio.wait_for(gate.begun.wait(), SECONDS_MAX)
        assert len(env.worker.runs) == 1
        gate.open.set()
        assert await env.result(run) == "hello"
        assert env.worker.runs == {}
    await store.discard()


async def test_a_crash_leaves_no_task_of_a_run_woken_before_it_knows_that_it_sleeps() -> None:
    class Silent(KeptStore):
        """Keeps a suspension, wakes the run, and never tells of it."""

        async def commit(
            self, operations: Sequence[Operation], *, request: str = ""
        ) -> list[Outcome]:
            outcomes = await super().commit(operations, request=request)
            if any(isinstance(o, Append) and isinstance(o.then, Suspend) for o in operations):
                await self._kept.post("asks", MailKind.MESSAGE, "", b'"hello"', 0)
                await asyncio.Event().wait()
            return outcomes

    @holdfast.workflow
    async def asks() -> str:
        return await holdfast.receive(str)

    store = Silent()
    env = Environment([asks], store=store)
    await env.open()
    await env.app.with_options(id="asks").start(asks)
    async with asyncio.timeout(SECONDS_MAX):
        while not any(run.row.epoch > 1 for run in env.worker.runs.values()):  # noqa: ASYNC110
            await asyncio.sleep(0)
    await env.die()
    await store.discard()
    for _ in range(10):
        await asyncio.sleep(0)
    ours = [task for task in asyncio.all_tasks() if isinstance(task, BodyTask)]
    assert ours == []


async def test_mail_that_reaches_a_step_while_its_run_is_about_to_leave_is_written_down() -> None:
    class SlowToLetGo(KeptStore):
        """While a run is on its way out, a message comes and is handed to it."""

        async def commit(
            self, operations: Sequence[Operation], *, request: str = ""
        ) -> list[Outcome]:
            leaving = [o for o in operations if isinstance(o, Append) and o.then is not None]
            if leaving and isinstance(leaving[0].then, Suspend) and not posted:
                posted.append(await self._kept.post("asks", MailKind.MESSAGE, "", b'"hello"', 0))
                run = env.worker.runs[leaving[0].run]
                async with asyncio.timeout(SECONDS_MAX):
                    while run.inbox.seen < posted[0].id:  # noqa: ASYNC110  nobody tells
                        await asyncio.sleep(0)
            return await super().commit(operations, request=request)

    @holdfast.step
    async def listens() -> str:
        return await holdfast.receive(str)

    @holdfast.workflow
    async def asks() -> str:
        return await listens()

    posted: list[Mail] = []
    store = SlowToLetGo()
    async with Environment([asks], store=store) as env:
        run = await env.app.with_options(id="asks").start(asks)
        assert await env.result(run) == "hello"
        assert posted
    await store.discard()


async def test_mail_that_could_not_be_fetched_is_fetched_at_the_next_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Falters(KeptStore):
        async def mail(self, runs: Sequence[tuple[RunKey, int]]) -> list[Mail]:
            if sent and not failed.is_set():
                failed.set()
                raise StoreUnavailable("for a moment")
            return await self._kept.mail(runs)

    @holdfast.workflow
    async def asks() -> str:
        return await holdfast.receive(str)

    monkeypatch.setattr(SQLiteStore, "poll_seconds", 1e6)  # no slow look comes to the rescue
    sent: list[bool] = []
    failed = asyncio.Event()
    store = Falters()
    stays = WorkerOptions(memory_wait=timedelta(days=1))
    async with Environment([asks], store=store, worker_options=stays) as env:
        run = await env.start(asks)
        await env.settle()
        sent.append(True)
        await run.send("hello")
        await asyncio.wait_for(failed.wait(), SECONDS_MAX)
        env.worker.wake()
        assert await asyncio.wait_for(run.result(), SECONDS_MAX) == "hello"
    await store.discard()
