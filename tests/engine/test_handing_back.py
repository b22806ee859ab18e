"""A worker that holds a run and cannot go on with it hands it back: none stays behind `running`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.errors import StoreError, StoreUnavailable
from holdfast.store.base import Append, Operation, Outcome, Refused, Start
from holdfast.testing import Environment
from holdfast.testing.conformance.given import new_run
from holdfast.testing.kept_store import KeptStore
from holdfast.types import Kind, Status
from holdfast.worker import returns


@holdfast.step
async def note(what: str) -> str:
    return what


@holdfast.workflow
async def naps() -> str:
    first = await note("one")
    await holdfast.sleep(timedelta(days=1))
    return first + await note("two")


@holdfast.workflow
async def talks() -> str:
    holdfast.session().append("hello")
    return await note("said")


class Stumbling(KeptStore):
    """Fails once in each of the named verbs."""

    def __init__(self, *verbs: str) -> None:
        super().__init__()
        self.left = list(verbs)

    def __getattribute__(self, name: str) -> Any:
        if name in ("left", "_fail") or name not in self.left:
            return super().__getattribute__(name)
        self.left.remove(name)
        return self._fail

    async def _fail(self, *args: object, **kwargs: object) -> None:
        raise StoreUnavailable("out of reach for a moment")


async def test_runs_whose_journals_cannot_be_read_go_on_when_they_can() -> None:
    store = Stumbling()
    async with Environment([naps], store=store) as env:
        runs = [await env.start(naps) for _ in range(3)]
        await env.settle()
        store.left = ["journal", "release"]
        for run in runs:
            assert await env.result(run) == "onetwo"
        assert store.left == []
    await store.discard()


@pytest.mark.parametrize("verb", ["session_state", "session_messages"])
async def test_a_run_whose_session_cannot_be_read_goes_on_when_it_can(verb: str) -> None:
    store = Stumbling(verb)
    async with Environment([talks], store=store) as env:
        run = await env.app.with_options(session="ada").start(talks)
        assert await env.result(run) == "said"
        assert store.left == []
    await store.discard()


class Picky(KeptStore):
    """Cannot keep what a step named `note` returns, as a database cannot keep certain texts."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self._kind = kind

    async def commit(self, operations: Sequence[Operation], *, request: str = "") -> list[Outcome]:
        outcomes: list[Outcome] = []
        for operation in operations:
            if isinstance(operation, Append) and any(
                entry.kind is self._kind for entry in operation.entries
            ):
                outcomes.append(Refused(StoreError("these characters cannot be kept")))
            else:
                outcomes += await self._kept.commit([operation], request=request)
        return outcomes


@pytest.mark.parametrize("kind", [Kind.STEP, Kind.END])
async def test_a_run_whose_entries_cannot_be_written_is_parked_and_says_why(kind: Kind) -> None:
    store = Picky(kind)
    async with Environment([naps, talks], store=store) as env:
        talking = await env.app.with_options(session="s").start(talks)
        for run in (talking, await env.start(naps)):
            await env.ended(run.id)
            with pytest.raises(holdfast.RunHalted, match="these characters"):
                await run.result()
            row = await env.app.row(run.id)
            assert (row.status, row.owner) == (Status.PARKED, None)
        assert env.worker.runs == {}
    await store.discard()


@pytest.mark.parametrize("kind", [Kind.STEP, Kind.END])
async def test_a_run_whose_entries_cannot_be_written_is_cancelled_if_its_end_can(
    kind: Kind,
) -> None:
    store = Picky(kind)
    async with Environment([naps, talks], store=store) as env:
        talking = await env.app.with_options(session="s").start(talks)
        for run in (talking, await env.start(naps)):
            await env.ended(run.id)
            for _ in range(2):
                if not (await env.app.row(run.id)).status.ended:
                    await run.cancel()
                    await env.settle()
            expected = Status.CANCELLED if kind is Kind.STEP else Status.PARKED
            assert await run.status() is expected
        assert env.worker.runs == {}
    await store.discard()


async def test_a_run_that_the_store_believes_to_be_here_and_is_not_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Environment([naps]) as env:
        # As if the answer to a claim, or after a failover the end of a run, had been lost.
        stray = new_run("stray", workflow=naps.name, input=b'{"args":[],"kwargs":{}}')
        await env.store.commit([Start(stray, claim_for=env.worker.id)])
        row = await env.app.row("stray")
        assert (row.owner, env.worker.runs) == (env.worker.id, {})
        # Not before: the worker may look around at any time.
        monkeypatch.setattr(returns, "STRAY_SECONDS", 0.0)
        env.worker._poll()
        await env.settle()
        assert (await env.app.row("stray")).epoch == row.epoch + 1
        await env.ended("stray")
        assert await env.app.result("stray") == "onetwo"
