"""Queues as runs meet them: limits, rates, fairness, pauses."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import holdfast
from holdfast import Queue, Rate, Status, WorkerOptions
from holdfast.errors import BadArguments, UnknownQueue
from holdfast.testing import Environment

MINUTE = timedelta(minutes=1)


class Counted:
    """Counts who is at work at once, and lets everybody go when told to."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.gate = asyncio.Event()
        self._changed = asyncio.Condition()

    async def work(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        async with self._changed:
            self._changed.notify_all()
        await self.gate.wait()
        self.now -= 1

    async def reached(self, count: int) -> None:
        async with asyncio.timeout(120), self._changed:
            await self._changed.wait_for(lambda: self.now >= count)


async def test_no_more_runs_of_a_queue_are_in_memory_than_it_allows() -> None:
    counted = Counted()

    @holdfast.step
    async def work() -> None:
        await counted.work()

    @holdfast.workflow
    async def job(n: int) -> int:
        await work()
        return n

    async with Environment([job], queues=[Queue("narrow", concurrency=2)]) as env:
        app = env.app.with_options(queue="narrow")
        runs = [await app.start(job, n) for n in range(6)]
        free = await env.start(job, 7)  # of another queue
        await counted.reached(3)
        narrow = next(row for row in await env.app.queues() if row.name == "narrow")
        assert (narrow.running, narrow.ready) == (2, 4)
        assert "one of 2 runs to leave memory" in await env.app.why(runs[-1].id)
        counted.gate.set()
        assert [await run.result() for run in runs] == list(range(6))
        assert await free.result() == 7
        assert counted.most == 3


async def test_runs_are_begun_at_the_rate_of_their_queue() -> None:
    times: list[timedelta] = []

    async with Environment([], clock=holdfast.FakeClock()) as unused:
        began = unused.clock.now()

    @holdfast.step
    async def note() -> None:
        times.append(timedelta(microseconds=env.clock.now() - began))

    @holdfast.workflow
    async def paced() -> None:
        await note()
        await holdfast.sleep(1)  # to go on costs no second place
        await note()

    queue = Queue("paced", rate=Rate(2, per=MINUTE))
    async with Environment([paced], queues=[queue]) as env:
        app = env.app.with_options(queue="paced")
        for run in [await app.start(paced) for _ in range(3)]:
            await env.result(run)
    assert [round(t.total_seconds()) for t in times] == [0, 1, 30, 31, 60, 61]


async def test_a_run_that_waits_leaves_its_place_to_another() -> None:
    @holdfast.workflow
    async def waits(name: str) -> str:
        return await holdfast.promise(name, str)

    async with Environment([waits], queues=[Queue("narrow", concurrency=1)]) as env:
        app = env.app.with_options(queue="narrow")
        runs = [await app.start(waits, name) for name in ("a", "b", "c")]
        await env.settle()
        rows = [await env.app.row(run.id) for run in runs]
        assert {row.status for row in rows} == {Status.WAITING}
        for run, name in zip(runs, "abc", strict=True):
            await env.app.resolve(run.id, name, name)
        assert [await env.result(run) for run in runs] == ["a", "b", "c"]


async def test_a_parent_and_its_child_do_not_block_each_other_in_a_narrow_queue() -> None:
    @holdfast.workflow(queue="narrow")
    async def child() -> str:
        await holdfast.sleep(60)
        return "done"

    @holdfast.workflow(queue="narrow")
    async def parent() -> str:
        return await holdfast.child(child)

    async with Environment([parent, child], queues=[Queue("narrow", concurrency=1)]) as env:
        assert await env.result(await env.start(parent)) == "done"


async def test_a_paused_queue_waits_until_it_is_resumed() -> None:
    @holdfast.workflow(queue="slow")
    async def job() -> str:
        return "done"

    async with Environment([job], queues=[Queue("slow")]) as env:
        await env.app.pause_queue("slow")
        run = await env.start(job)
        await env.advance(timedelta(days=1))
        assert (await env.app.row(run.id)).status is Status.PENDING
        assert "holdfast queues resume slow" in await env.app.why(run.id)
        await env.crash()  # a restart declares the queue again, and does not resume it
        await env.settle()
        assert (await env.app.row(run.id)).status is Status.PENDING
        await env.app.resume_queue("slow")
        assert await env.result(run) == "done"
        for change in (env.app.pause_queue, env.app.resume_queue):
            with pytest.raises(UnknownQueue, match="nowhere"):
                await change("nowhere")


async def test_keys_take_turns() -> None:
    order: list[str] = []

    @holdfast.step
    async def note(key: str) -> None:
        order.append(key)

    @holdfast.workflow
    async def job(key: str) -> None:
        await note(key)

    one_at_a_time = WorkerOptions(concurrency=1)
    async with Environment([job], worker_options=one_at_a_time) as env:
        await env.app.pause_queue("default")
        started = [("busy", 20), ("small", 3)]
        runs = [
            await env.app.with_options(fairness_key=key).start(job, key)
            for key, count in started
            for _ in range(count)
        ]
        await env.app.resume_queue("default")
        for run in runs:
            await env.result(run)
    assert order[:6].count("small") == 3


async def test_a_dead_workers_places_come_back() -> None:
    counted = Counted()

    @holdfast.step
    async def work() -> None:
        await counted.work()

    @holdfast.workflow(queue="narrow")
    async def job(n: int) -> int:
        await work()
        return n

    async with Environment([job], queues=[Queue("narrow", concurrency=2)]) as env:
        runs = [await env.start(job, n) for n in range(4)]
        await counted.reached(2)
        counted.now = 0
        await env.crash()
        await counted.reached(2)
        assert counted.most == 2
        counted.gate.set()
        assert [await run.result() for run in runs] == [0, 1, 2, 3]


async def test_a_fork_stays_in_the_share_of_its_run() -> None:
    @holdfast.step
    async def note() -> None: ...

    @holdfast.workflow
    async def job() -> None:
        await note()

    async with Environment([job]) as env:
        app = env.app.with_options(queue="q", priority=3, fairness_key="tenant-a")
        run = await app.start(job)
        await env.result(run)
        forked = await env.app.fork(run.id, before="/note#0")
        row = await env.app.row(forked.id)
        assert (row.queue, row.priority, row.fairness_key) == ("q", 3, "tenant-a")
        await env.result(forked)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Queue(""),
        lambda: Queue("x" * 513),
        lambda: Queue("q", concurrency=0),
        lambda: Queue("q", concurrency=-1),
        lambda: Queue("q", concurrency=1.5),  # type: ignore[arg-type]
        lambda: Queue("q", concurrency=True),
        lambda: Queue("q", per_worker=0),
        lambda: Queue("q", rate=100),  # type: ignore[arg-type]
        lambda: Rate(0, per=MINUTE),
        lambda: Rate(1, per=timedelta(0)),
        lambda: Rate(1, per=60),  # type: ignore[arg-type]
        lambda: Rate(1, per=MINUTE, burst=0),
        lambda: holdfast.Holdfast(queues=["q"]),  # type: ignore[list-item]
        lambda: holdfast.Holdfast(queues=[Queue("q"), Queue("q", concurrency=1)]),
        lambda: holdfast.Holdfast().with_options(fairness_key=""),
        lambda: holdfast.Holdfast().with_options(fairness_key=["unhashable"]),
        lambda: holdfast.Holdfast().with_options(queue=""),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(wrong) -> None:
    with pytest.raises(BadArguments):
        wrong()
