"""An answer that comes while a run is leaving memory wakes it: none gets lost."""

from __future__ import annotations

import asyncio
import queue
import threading
from datetime import timedelta

import pytest

import holdfast
from holdfast.errors import AlreadyEnded, AlreadyResolved, RunCancelled
from tests.crash.fleet import SECONDS_MAX

asking: queue.SimpleQueue[str] = queue.SimpleQueue()


@pytest.fixture(autouse=True)
def nobody_is_asking() -> None:
    """A run that woke up asks once more, and the test before may have left that behind."""
    while not asking.empty():
        asking.get()


@holdfast.workflow
async def ask(id: str) -> int:
    answer = holdfast.promise("answer", int)
    asking.put(id)  # from now on somebody answers, while this run lies down
    return await answer


@holdfast.workflow
async def sleeper() -> None:
    await holdfast.sleep(timedelta(days=1))


def answer_from_outside(url: str, count: int) -> None:
    """In a thread and on a connection of its own, so that transactions really cross."""

    async def answer() -> None:
        async with holdfast.Holdfast(url, workflows=[ask], worker=False) as app:
            answered: set[str] = set()
            while len(answered) < count:
                id = asking.get(timeout=SECONDS_MAX)
                if id not in answered:  # a run that woke up asks once more, as it is replayed
                    answered.add(id)
                    await app.resolve(id, "answer", 7, early=True)

    asyncio.run(answer())


async def race(url: str, count: int) -> None:
    options = holdfast.WorkerOptions(memory_wait=timedelta(0))
    app = holdfast.Holdfast(url, workflows=[ask], worker_options=options)
    async with app:
        thread = threading.Thread(target=answer_from_outside, args=(url, count))
        thread.start()
        try:
            async with asyncio.timeout(SECONDS_MAX + count / 20):
                for first in range(0, count, 50):
                    ids = [f"ask-{n}" for n in range(first, first + 50)]
                    runs = [await app.with_options(id=id).start(ask, id) for id in ids]
                    assert [await run.result() for run in runs] == [7] * 50
        finally:
            thread.join(SECONDS_MAX)


async def test_an_answer_that_races_a_suspension_is_never_lost(url: str) -> None:
    await race(url, 500)


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_nor_is_one_of_very_many(url: str) -> None:
    await race(url, 30_000)


async def test_a_cancel_that_races_a_sleepers_suspension_is_never_lost(url: str) -> None:
    async with holdfast.Holdfast(url, workflows=[sleeper]) as app:
        for _ in range(100):
            run = await app.start(sleeper)
            await run.cancel()
            async with asyncio.timeout(SECONDS_MAX):
                with pytest.raises(RunCancelled):
                    await run.result()


async def test_of_two_answers_that_race_one_stands(url: str) -> None:
    options = holdfast.WorkerOptions(memory_wait=timedelta(0))
    async with (
        holdfast.Holdfast(url, workflows=[ask], worker_options=options) as app,
        holdfast.Holdfast(url, workflows=[ask], worker=False) as other,
    ):
        for n in range(100):
            run = await app.with_options(id=f"r{n}").start(ask, f"r{n}")
            both = await asyncio.gather(
                app.resolve(run.id, "answer", 1, early=True),
                other.resolve(run.id, "answer", 2, early=True),
                return_exceptions=True,
            )
            refused = [error for error in both if error is not None]
            assert len(refused) == 1
            assert isinstance(refused[0], AlreadyResolved | AlreadyEnded)
            assert await run.result() == (2 if both[0] is not None else 1)
