"""Finding, hearing and pruning runs, and the rest that concerns the store as a whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.errors import IdRetired, StoreError
from holdfast.store.base import Refused, Start, Started, Store
from holdfast.testing.conformance.given import (
    NOW,
    SECOND,
    Bell,
    append,
    do,
    end,
    new_run,
    promise,
    row,
    start,
    started_and_claimed,
    step,
    suspend,
    worker,
)
from holdfast.types import Entry, Kind, MailKind, RunFilter, Status


async def ids(store: Store, which: RunFilter) -> list[str]:
    return [run.id for run in await store.find(which)]


class Finding:
    async def test_the_newest_runs_come_first_unless_asked_otherwise(self, store: Store) -> None:
        for n in range(5):
            await start(store, f"run-{n}", created_at=NOW + n)
        assert await ids(store, RunFilter(limit=2)) == ["run-4", "run-3"]
        assert await ids(store, RunFilter(limit=2, newest_first=False)) == ["run-0", "run-1"]

    async def test_filters_restrict_and_combine(self, store: Store) -> None:
        await worker(store)
        parent = await start(store, "parent", workflow="w1", queue="q1")
        done = await started_and_claimed(store, "done", workflow="w2", created_at=NOW + 5)
        await start(store, "child", workflow="w2", session="s", parent=parent.key)
        await end(store, done, 2)
        everything = {"parent", "child", "done"}
        cases = [
            (RunFilter(), everything),
            (RunFilter(workflow="w2"), {"child", "done"}),
            (RunFilter(session="s"), {"child"}),
            (RunFilter(queue="q1"), {"parent"}),
            (RunFilter(parent="parent"), {"child"}),
            (RunFilter(parent="nobody"), set()),
            (RunFilter(status=frozenset({Status.PENDING})), {"parent", "child"}),
            (RunFilter(status=frozenset({Status.PENDING, Status.COMPLETED})), everything),
            (RunFilter(status=frozenset({Status.FAILED})), set()),
            (RunFilter(created_after=NOW), {"done"}),
            (RunFilter(created_before=NOW + 5), {"parent", "child"}),
            (RunFilter(workflow="w2", status=frozenset({Status.COMPLETED})), {"done"}),
        ]
        for which, expected in cases:
            assert set(await ids(store, which)) == expected, which

    async def test_a_prefix_is_taken_literally(self, store: Store) -> None:
        for id in ("a%b", "a_b", "axb", "a", "b", "A"):
            await start(store, id)
        assert await ids(store, RunFilter(id_prefix="a%")) == ["a%b"]
        assert await ids(store, RunFilter(id_prefix="a_")) == ["a_b"]
        assert set(await ids(store, RunFilter(id_prefix="a"))) == {"a%b", "a_b", "axb", "a"}

    @pytest.mark.parametrize("evil", ["' OR '1'='1", "x'; DELETE FROM runs; --", '"', "\\", "%"])
    async def test_text_that_looks_like_sql_finds_nothing(self, store: Store, evil: str) -> None:
        await start(store, "run")
        for which in (
            RunFilter(workflow=evil),
            RunFilter(session=evil),
            RunFilter(queue=evil),
            RunFilter(id_prefix=evil),
            RunFilter(parent=evil),
        ):
            assert await ids(store, which) == []
        assert await store.get(evil) is None
        assert await ids(store, RunFilter()) == ["run"]

    async def test_settled_are_those_that_will_not_change_by_themselves(self, store: Store) -> None:
        await worker(store)
        for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED):
            await end(store, await started_and_claimed(store, status), 2, status)
        await started_and_claimed(store, "running")
        await suspend(store, await started_and_claimed(store, "waiting"), 2)
        await start(store, "paused")
        await store.post("paused", MailKind.PAUSE, "", None, NOW)
        asked = ["running", "completed", "failed", "cancelled", "waiting", "paused", "nobody"]
        found = {run.id for run in await store.settled(asked)}
        assert found == {"completed", "failed", "cancelled"}
        assert await store.settled([]) == []


class Listening:
    async def test_a_listener_hears_of_what_it_could_act_on(self, store: Store) -> None:
        await worker(store)
        bell = Bell(store)
        await start(store, "run")
        await bell.wait()
        await store.post("run", MailKind.MESSAGE, "", b"", NOW)
        await bell.wait()
        run = await started_and_claimed(store, "other", workflow="other")
        await end(store, run, 2)
        await bell.wait()
        await store.reap("w1", NOW, dead=True)
        await bell.wait()
        bell.stop()

    async def test_a_listener_that_stopped_hears_nothing(self, store: Store) -> None:
        bell, other = Bell(store), Bell(store)
        bell.stop()
        await start(store, "run")
        await other.wait()
        assert bell.rings == 0
        other.stop()

    async def test_a_ring_comes_on_the_loop_and_not_inside_the_call(self, store: Store) -> None:
        bell, callers = Bell(store), list[object]()
        stop = store.listen(lambda: callers.append(asyncio.current_task()))
        await asyncio.gather(*(start(store, f"run-{n}") for n in range(3)))
        await bell.wait()
        assert callers and set(callers) == {None}
        bell.stop()
        stop()


class Pruning:
    async def test_pruning_takes_the_oldest_ended_runs_and_all_they_own(self, store: Store) -> None:
        await worker(store)
        for n in range(4):
            run = await started_and_claimed(store, f"run-{n}")
            await do(store, append(run, step(2), promises=[promise(run, "ok")]))
            await store.post(run.id, MailKind.PROMISE, "ok", b"", NOW)
            await end(store, run, 3, at=NOW + n)
        await started_and_claimed(store, "running")
        kept = (await row(store, "run-3")).key
        gone = (await row(store, "run-0")).key
        assert await store.prune(NOW + 3, 2) == 2
        assert await store.get("run-0") is None and await store.get("run-1") is None
        assert await store.prune(NOW + 3, 2) == 1
        assert await store.prune(NOW + 3, 2) == 0
        assert await store.journal(gone) == [] and await store.promises(gone) == []
        assert await store.mail([(gone, 0)]) == []
        assert len(await store.journal(kept)) == 3
        assert len(await store.mail([(kept, 0)])) == 1
        assert (await row(store, "running")).status is Status.RUNNING

    async def test_the_id_of_a_deleted_run_is_not_free_before_its_time(self, store: Store) -> None:
        await worker(store)
        for session in (None, "s"):
            await end(store, await started_and_claimed(store, "run", session=session), 2)
            until = NOW + 10 * SECOND
            assert await store.prune(NOW + SECOND, 10, now=NOW, keep_ids_until=until) == 1
            for again in (None, "s"):
                late = new_run("run", session=again, created_at=until - 1)
                (outcome,) = await store.commit([Start(late)])
                assert isinstance(outcome, Refused), outcome
                assert isinstance(outcome.error, IdRetired), outcome.error
                assert "'run' ended (completed)" in str(outcome.error)
            assert await store.get("run") is None
            await store.prune(0, 10, now=until)

    async def test_the_id_of_a_start_that_joined_a_deleted_run_is_kept_as_well(
        self, store: Store
    ) -> None:
        await worker(store)
        run = await started_and_claimed(store, "run", session="s")
        joining = [Start(new_run(f"join-{n}", session="s", on_busy="join")) for n in range(2)]
        for outcome in await store.commit(joining):
            assert isinstance(outcome, Started) and outcome.joined, outcome
        mail = await store.mail([(run.key, 0)])
        received = [Entry(2 + n, Kind.MESSAGE, "/m", NOW, mail=mail[n].id) for n in range(2)]
        await do(store, append(run, *received))
        await end(store, run, 4)
        await end(store, await started_and_claimed(store, "join-1"), 2)  # without a session
        until = NOW + 10 * SECOND
        assert await store.prune(NOW + SECOND, 10, now=NOW, keep_ids_until=until) == 2
        for start_again in joining:
            (refused,) = await store.commit([start_again])
            assert isinstance(refused, Refused), refused
            assert isinstance(refused.error, IdRetired), refused.error
        for n in range(2):
            assert await store.get(f"join-{n}") is None
        await store.prune(0, 10, now=until)
        late = new_run("join-0", session="s", on_busy="join", created_at=until)
        (outcome,) = await store.commit([Start(late)])
        assert isinstance(outcome, Started) and outcome.created, outcome

    async def test_ids_that_expire_all_at_once_are_all_forgotten_soon(self, store: Store) -> None:
        await worker(store)
        until, names = NOW + 10 * SECOND, [f"run-{n}" for n in range(30)]
        for id in names:
            await end(store, await started_and_claimed(store, id), 2)
        assert await store.prune(NOW + SECOND, 50, now=NOW, keep_ids_until=until) == len(names)
        await store.prune(0, 2, now=until)
        for id in names:
            (outcome,) = await store.commit([Start(new_run(id, created_at=until - 1))])
            assert isinstance(outcome, Started) and outcome.created, outcome

    async def test_children_stay_as_long_as_their_parent(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent")
        child = await started_and_claimed(store, "child", parent=parent.key, parent_step="/c#0")
        await end(store, child, 2)
        assert await store.prune(NOW + SECOND, 10) == 0
        await end(store, parent, 2)
        assert await store.prune(NOW + SECOND, 10) == 2

    async def test_a_pruned_id_can_be_used_again(self, store: Store) -> None:
        await worker(store)
        await end(store, await started_and_claimed(store, "run"), 2)
        await store.prune(NOW + SECOND, 10)
        await start(store, "run")


class Closing:
    async def test_a_closed_store_says_so(self, store: Store) -> None:
        await store.close()
        with pytest.raises(Exception, match="not open"):
            await store.get("run")
        await store.close()
        await store.open()
        assert await store.get("nobody") is None

    async def test_a_backup_does_not_overwrite(self, store: Store, tmp_path: Path) -> None:
        target = tmp_path / "copy"
        target.write_bytes(b"precious")
        with pytest.raises(StoreError):
            await store.backup(str(target))
        assert target.read_bytes() == b"precious"

    async def test_many_tasks_may_use_one_store(self, store: Store) -> None:
        await worker(store)

        async def life(n: int) -> None:
            run = await started_and_claimed(store, f"run-{n}")
            for seq in range(2, 6):
                await do(store, append(run, step(seq)))
            await end(store, run, 6)

        await asyncio.gather(*(life(n) for n in range(30)))
        found = await store.find(RunFilter(status=frozenset({Status.COMPLETED})))
        assert len(found) == 30
        (again,) = await store.commit([Start(new_run("run-0"))])
        assert not getattr(again, "created", True)
