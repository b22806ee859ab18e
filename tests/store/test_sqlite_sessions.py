"""Random lives in a few sessions: never two strangers at once, and nobody is forgotten."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.register_assert_rewrite("holdfast.testing")

from holdfast.store.base import ContinueAs, Start, Started  # noqa: E402
from holdfast.store.sqlite import SQLiteStore  # noqa: E402
from holdfast.testing.conformance.given import (  # noqa: E402
    NOW,
    append,
    do,
    end,
    new_run,
    row,
    step,
    waiting,
    worker,
)
from holdfast.types import ENDED, HALTED, MailKind, RunRow, Status  # noqa: E402

LATER = NOW + 1_000_000
OPEN = set(Status) - ENDED


class Life:
    """Does one random thing after the other to a store."""

    def __init__(self, store: SQLiteStore, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.now = NOW
        self.count = 0
        self.workers = 0
        self.worker = ""

    async def register(self) -> None:
        self.workers += 1
        self.worker = f"w{self.workers}"
        await worker(self.store, self.worker)

    async def runs(self, *statuses: Status) -> list[RunRow]:
        db = self.store._reader._db
        ids = [id for (id,) in db.execute("SELECT id FROM runs ORDER BY key")]
        found = [await row(self.store, id) for id in ids]
        return [run for run in found if run.status in statuses]

    async def any_run(self, *statuses: Status) -> RunRow | None:
        found = await self.runs(*statuses)
        return self.random.choice(found) if found else None

    async def next_seq(self, run: RunRow) -> int:
        return len(await self.store.journal(run.key)) + 1

    # What can happen

    async def start(self) -> None:
        self.count += 1
        fields: dict[str, Any] = {
            "session": self.random.choice(["a", "b", None]),
            "while_waiting": self.random.choice(["hold", "release"]),
            "on_busy": self.random.choice(["enqueue"] * 4 + ["join", "interrupt", "reject"]),
            "priority": self.random.randrange(3),
            "created_at": self.now,
            "ready_at": self.now + self.random.choice([0, 0, 0, 5]),
            "deadline_at": self.random.choice([None, None, self.now + 20]),
        }
        parent = await self.any_run(Status.RUNNING)
        if parent is not None and self.random.random() < 0.4:
            fields["parent"] = parent.key
            fields["parent_step"] = self.random.choice([f"/call#{self.count}", None])
            fields["session"] = parent.session
        claim_for = self.random.choice([self.worker, None])
        (outcome,) = await self.store.commit(
            [Start(new_run(f"run-{self.count}", **fields), claim_for)]
        )
        if isinstance(outcome, Started) and outcome.claimed:
            self.check_slots()

    async def claim(self) -> None:
        limit = self.random.choice([1, 2, 10])
        await self.store.claim(self.worker, ["research"], self.now, limit, alone=True)
        self.check_slots()

    async def suspend(self) -> None:
        run = await self.any_run(Status.RUNNING)
        if run is not None:
            mail = await self.store.mail([(run.key, 0)])
            seen = max((m.id for m in mail), default=0)
            at = self.random.choice([None, self.now + 3])
            entry = step(await self.next_seq(run))
            then = waiting(ready_at=at, mail_seen=seen)
            await do(self.store, append(run, entry, then=then, at=self.now))

    async def end(self) -> None:
        run = await self.any_run(Status.RUNNING)
        if run is not None:
            await end(self.store, run, await self.next_seq(run), at=self.now)

    async def continue_as(self) -> None:
        run = await self.any_run(Status.RUNNING)
        if run is not None:
            then = ContinueAs(b"again", b"d")
            await do(self.store, append(run, then=then, at=self.now))

    async def post(self) -> None:
        run = await self.any_run(*OPEN)
        if run is not None:
            kind = self.random.choice([MailKind.MESSAGE, MailKind.PAUSE, MailKind.CANCEL])
            await self.store.post(run.id, kind, "", None, self.now)

    async def resume(self) -> None:
        run = await self.any_run(*HALTED)
        if run is not None:
            await self.store.resume(run.id, self.now)

    async def release(self) -> None:
        run = await self.any_run(Status.RUNNING)
        if run is not None and run.owner is not None:
            await self.store.release(run.owner, [(run.key, run.epoch)], self.now)

    async def die(self) -> None:
        await self.store.reap(self.worker, self.now, dead=True)
        await self.register()

    async def time_passes(self) -> None:
        self.now += self.random.randrange(1, 6)
        await self.store.expire(self.now, b"too late")
        assert all(run.epoch for run in await self.runs(*OPEN) if self._is_overdue(run))

    def _is_overdue(self, run: RunRow) -> bool:
        return run.deadline_at is not None and run.deadline_at <= self.now

    async def anything(self) -> None:
        often = [self.start, self.claim, self.end, self.time_passes, self.post, self.suspend]
        rarely = [self.resume, self.release, self.die, self.continue_as]
        await self.random.choice(often * 3 + rarely)()

    # What must hold

    def check_slots(self) -> None:
        """Of two runs that hold or run in one session, they share a line of awaited children."""
        db = self.store._reader._db
        rows = db.execute("SELECT key, session, parent, parent_step, status FROM runs").fetchall()
        parents = {key: parent for key, _, parent, step_key, _ in rows if step_key is not None}

        def root(key: int) -> int:
            while parents.get(key) is not None:
                key = parents[key]
            return key

        running: dict[str, set[int]] = {}
        for key, session, _, _, status in rows:
            if session is not None and status == "running":
                running.setdefault(session, set()).add(root(key))
        for session, roots in running.items():
            assert len(roots) == 1, f"strangers run in session {session}"

    async def finish(self) -> None:
        """Nobody bothers the runs any more: all must come to their end."""
        for run in await self.runs(*HALTED):
            await self.store.resume(run.id, self.now)
        self.now = LATER
        for _ in range(10_000):
            for run in await self.runs(Status.WAITING):
                if run.ready_at is None:
                    await self.store.post(run.id, MailKind.MESSAGE, "", b"wake up", self.now)
            claimed = await self.store.claim(self.worker, ["research"], self.now, 1, alone=True)
            self.check_slots()
            running = await self.runs(Status.RUNNING)
            if not claimed and not running:
                break
            for run in running:
                await end(self.store, run, await self.next_seq(run), at=self.now)
        left = await self.runs(*OPEN)
        assert [(run.id, run.status, run.session) for run in left] == []


@pytest.mark.parametrize("seed", range(30))
async def test_sessions_keep_their_promises_whatever_happens(seed: int) -> None:
    store = SQLiteStore(":memory:")
    await store.open()
    life = Life(store, seed)
    await life.register()
    for _ in range(250):
        await life.anything()
    await life.finish()
    await store.close()
