"""Several processes on one store: what survives their death, and who notices it."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("holdfast.testing")

from holdfast.store import open_store, upgrade  # noqa: E402
from holdfast.store.base import Appended, Start, Store  # noqa: E402
from holdfast.testing.conformance.given import (  # noqa: E402
    NOW,
    Bell,
    append,
    claim,
    new_run,
    row,
    start,
    step,
    worker,
)
from holdfast.types import RunFilter, Status  # noqa: E402
from tests.store.spawning import (  # noqa: E402
    Spawn,
    come,
    line,
    only_worker,
    spawning,
    tell,
    watched,
)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    made: str = request.getfixturevalue("postgres_url")
    return made


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    await upgrade(url)
    store = open_store(url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def spawn(url: str) -> Iterator[Spawn]:
    """Starts one of the children's functions on the test's store."""
    with spawning(url) as run:
        yield run


async def all_journals(store: Store) -> dict[str, list[int]]:
    """As they stand once nothing changes any more: a server may have been in the middle of it."""
    before: dict[str, list[int]] = {}
    while True:
        found = {
            run.id: [entry.seq for entry in await store.journal(run.key)]
            for run in await store.find(RunFilter(limit=1000))
        }
        if found == before:
            return found
        before = found


class TestSharing:
    async def test_no_run_is_claimed_by_two_processes(self, store: Store, spawn: Spawn) -> None:
        await store.commit([Start(new_run(f"run-{n}")) for n in range(200)])
        children = [spawn("claim_everything", f"w{n}") for n in range(3)]
        for child in children:
            assert line(child) == ["ready"]
        for child in children:
            tell(child)
        claimed = [id for child in children for id in line(child)]
        assert len(claimed) == 200
        assert len(set(claimed)) == 200

    async def test_one_id_started_by_many_processes_is_one_run(
        self, store: Store, spawn: Spawn
    ) -> None:
        children = [spawn("start_run", "same") for _ in range(4)]
        created = [line(child) for child in children]
        assert created.count(["True"]) == 1
        assert len(await store.find(RunFilter())) == 1

    async def test_a_process_hears_of_mail_that_another_posted(
        self, store: Store, spawn: Spawn
    ) -> None:
        run = await start(store, "run")
        child = spawn("post_when_told", "run")
        assert line(child) == ["ready"]
        bell = Bell(store)
        tell(child)
        while not (mail := await store.mail([(run.key, 0)])):  # it may ring without a cause
            await bell.wait()
        assert [piece.payload for piece in mail] == [b"from afar"]

    def test_a_forked_child_is_told_to_open_its_own_store(self, store: Store, spawn: Spawn) -> None:
        child = spawn("fork_and_use")
        output, _ = child.communicate()
        refused, went_on = output.splitlines()
        assert refused.startswith("refused:") and "after the fork" in refused
        assert went_on == "went on 2"


class TestDeath:
    @pytest.mark.parametrize("acknowledged", [1, 5, 20, 40])
    async def test_what_was_acknowledged_survives_a_kill_and_nothing_is_half_written(
        self, store: Store, spawn: Spawn, acknowledged: int
    ) -> None:
        child = spawn("commit_forever", "w")
        done = [id for _ in range(acknowledged) for id in line(child)]
        child.send_signal(signal.SIGKILL)
        rest, _ = child.communicate()
        done += rest.split()[: len(rest.split()) // 2 * 2]
        journals = await all_journals(store)
        assert await store.check() == []
        for id in done:
            assert journals[id] == [1, 2, 3, 4], id
        # A batch is three entries for each of two runs: it is there as a whole or not at all.
        by_batch: dict[str, set[int]] = {}
        for id, places in journals.items():
            assert places in ([1], [1, 2, 3, 4])
            by_batch.setdefault(id.rpartition("-")[0], set()).add(len(places))
        assert [lengths for lengths in by_batch.values() if len(lengths) > 1] == []

    async def test_the_death_of_a_worker_is_told_at_once(self, store: Store, spawn: Spawn) -> None:
        child = spawn("live", "w1")
        line(child)
        found = await only_worker(store)
        assert not await store.is_dead(found)
        died = await watched(store, found)
        assert await store.reap("w1", NOW, dead=False) is None
        child.kill()
        await come(died)
        assert await store.is_dead(found)
        reaped = await store.reap("w1", NOW, dead=True)
        assert reaped is not None and reaped.runs == ["run of w1"]

    async def test_a_watch_that_was_stopped_tells_nothing(self, store: Store, spawn: Spawn) -> None:
        child = spawn("live", "w1")
        line(child)
        found = await only_worker(store)
        told: list[int] = []
        stop = store.watch(found, lambda: told.append(1))
        died = await watched(store, found)
        stop()
        child.kill()
        await come(died)
        assert told == []

    async def test_a_death_before_the_watch_is_told_too(self, store: Store, spawn: Spawn) -> None:
        child = spawn("live", "w1")
        line(child)
        found = await only_worker(store)
        child.kill()
        child.wait()
        await come(await watched(store, found))

    async def test_a_workers_children_do_not_keep_it_alive(
        self, store: Store, spawn: Spawn
    ) -> None:
        child = spawn("live_with_children", "w1")
        survivors = [int(pid) for pid in line(child)]
        found = await only_worker(store)
        died = await watched(store, found)
        try:
            assert not await store.is_dead(found)
            child.kill()
            await come(died)
            assert await store.is_dead(found)
        finally:
            for pid in survivors:
                os.kill(pid, signal.SIGKILL)


async def test_a_takeover_between_processes_fences_the_first_owner(
    store: Store, spawn: Spawn
) -> None:
    child = spawn("live", "w1")
    line(child)
    await worker(store, "w2")
    old = await row(store, "run of w1")
    assert (old.status, old.owner) == (Status.RUNNING, "w1")
    await store.reap("w1", NOW, dead=True)
    (claimed,) = await claim(store, "w2")
    outcomes = await store.commit([append(old, step(2)), append(claimed.row, step(3))])
    assert outcomes[1] == Appended()
    assert not isinstance(outcomes[0], Appended)
