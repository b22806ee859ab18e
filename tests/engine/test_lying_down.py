"""What comes while a run is on its way out of memory: the store refuses, and the run goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import holdfast
from holdfast import Status
from holdfast.store.base import Append, Operation, Suspend
from holdfast.testing import Environment
from holdfast.testing.kept_store import KeptStore

SECONDS_MAX = 120
AT_ONCE = holdfast.WorkerOptions(memory_wait=timedelta(0), unsure_wait=timedelta(0))


class Interrupted(KeptStore):
    """Lets something happen while the first request to suspend a run so is on its way."""

    def __init__(self, status: Status = Status.WAITING) -> None:
        super().__init__()
        self._status = status
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def commit(self, operations: Sequence[Operation], **more: Any) -> Any:
        after = [o.then for o in operations if isinstance(o, Append)]
        suspends = any(isinstance(then, Suspend) and then.status is self._status for then in after)
        if suspends and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return await super().commit(operations, **more)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not is_so():  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0)


@holdfast.workflow
async def waits() -> str:
    return await holdfast.promise("answer", str)


async def test_a_pause_that_arrives_before_the_suspension_is_refused_is_obeyed() -> None:
    store = Interrupted()
    async with Environment([waits], store=store, worker_options=AT_ONCE) as env:

        async def pause() -> None:
            [run] = env.worker.runs.values()
            await env.app.pause(run.row.id)
            await until(lambda: run.pausing)

        store.meanwhile = pause
        run = await env.start(waits)
        await env.settle()
        assert await run.status() is Status.PAUSED
        await run.resume()
        await run.resolve("answer", "yes")
        assert await env.result(run) == "yes"
    await store.discard()


async def test_a_body_that_ends_before_its_suspension_is_refused_has_ended() -> None:
    store = Interrupted()
    plain: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @holdfast.workflow
    async def ends_by_plain_io() -> str:
        answer = asyncio.ensure_future(waits())
        await asyncio.wait([answer, plain], return_when=asyncio.FIRST_COMPLETED)
        return "done"

    async with Environment([ends_by_plain_io], store=store, worker_options=AT_ONCE) as env:

        async def end() -> None:
            [run] = env.worker.runs.values()
            await env.app.send(run.row.id, "hello")
            plain.set_result("read")
            await until(lambda: run.closed)

        store.meanwhile = end
        run = await env.start(ends_by_plain_io)
        assert await env.result(run) == "done"
    await store.discard()


async def test_a_run_that_diverged_halts_whatever_mail_comes_then() -> None:
    store = Interrupted(Status.PARKED)
    luck = iter(range(10))

    @holdfast.workflow
    async def wanders() -> None:
        await note(next(luck))
        await waits()

    async with Environment([wanders], store=store) as env:

        async def send() -> None:
            await env.app.send(run.id, "hello")

        store.meanwhile = send
        run = await env.start(wanders)
        await env.settle()
        await run.resolve("answer", "yes")
        await env.settle()
        assert await run.status() is Status.PARKED
    await store.discard()


@holdfast.step
async def note(number: int) -> int:
    return number
