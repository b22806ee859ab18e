"""Many lives at once, in an order that a seed decides: runs in and out of sessions, with parents
and deadlines, are started, claimed, suspended, woken, halted and ended over several stores. However
they meet, no statement fails, and every run can be brought to its end afterwards. Sessions are
deleted meanwhile, but never what a run that has not ended said in its own.

The moments at which they meet do not repeat exactly: a seed gives what each life tries in turn.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import Any

import pytest

pytest.register_assert_rewrite("holdfast.testing")

from holdfast.errors import AlreadyEnded, NotResumable, SessionBusy  # noqa: E402
from holdfast.store import upgrade  # noqa: E402
from holdfast.store.base import (  # noqa: E402
    Append,
    Appended,
    End,
    MessageWrite,
    Refused,
    Start,
    Started,
    Store,
    Suspend,
)
from holdfast.store.postgres import PostgresStore  # noqa: E402
from holdfast.testing.conformance.given import NOW, WORKFLOW, claim, new_run, worker  # noqa: E402
from holdfast.types import (  # noqa: E402
    HALTED,
    Entry,
    Kind,
    MailKind,
    RunFilter,
    RunId,
    RunKey,
    RunRow,
    Status,
)

STORES = 4
LIVES_PER_STORE = 2
AFTERWARDS = NOW + 10**12
TICK = 1000  # of the clock that all lives share, at each thing that one does
RECENT = 30
RARE = 20  # sessions that are idle now and then
ENDLESS = 10_000

WHAT = {
    "begin": 4,
    "take": 4,
    "finish": 5,
    "lie_down": 3,
    "post": 3,
    "expire": 2,
    "resume": 1,
    "release": 1,
    "forget": 2,
}


class World:
    """What all lives share."""

    def __init__(self) -> None:
        self.ids: list[RunId] = []
        self.said: dict[RunKey, list[bytes]] = defaultdict(list)  # by runs, in their sessions
        self.forgotten = 0
        self._ticks = itertools.count()

    def now(self) -> int:
        return NOW + TICK * next(self._ticks)


class Life:
    def __init__(self, store: Store, name: str, seed: int, world: World) -> None:
        self.store = store
        self.name = name
        self.mine: dict[RunKey, RunRow] = {}
        self._random = random.Random(f"{seed} {name}")
        self._world = world
        self._count = 0

    async def live(self, steps: int) -> None:
        for _ in range(steps):
            (what,) = self._random.choices(list(WHAT), list(WHAT.values()))
            try:
                await getattr(self, what)(self._world.now())
            except (AlreadyEnded, NotResumable, SessionBusy):
                pass  # somebody was faster

    def _one_of_mine(self) -> RunRow | None:
        return self._random.choice(list(self.mine.values())) if self.mine else None

    async def begin(self, now: int) -> None:
        pick = self._random.choice
        self._count += 1
        fields: dict[str, Any] = {
            "session": pick(["a", "b", "c", None, f"rare {self._random.randrange(RARE)}"]),
            "while_waiting": pick(["hold", "release"]),
            "on_busy": pick(["enqueue", "enqueue", "interrupt", "reject"]),
            "created_at": now,
            "ready_at": now + pick([0, 0, 0, 50 * TICK]),
            "deadline_at": pick([None, now + 20 * TICK, now + 100 * TICK]),
        }
        parent = self._one_of_mine()
        if parent is not None and self._random.random() < 0.5:
            fields |= {"parent": parent.key, "parent_step": f"/child#{self._count}"}
            fields["session"] = pick([parent.session, "a", "b"])
        new = new_run(f"{self.name}-{self._count}", **fields)
        (outcome,) = await self.store.commit([Start(new, pick([self.name, None]))])
        if isinstance(outcome, Refused):
            assert isinstance(outcome.error, SessionBusy), outcome.error
            return
        assert isinstance(outcome, Started)
        self._world.ids.append(outcome.row.id)
        if outcome.claimed:
            self.mine[outcome.row.key] = outcome.row

    async def take(self, now: int) -> None:
        limit = self._random.choice([1, 2, 10])
        for claimed in await claim(self.store, self.name, now=now, limit=limit, alone=True):
            self.mine[claimed.row.key] = claimed.row

    async def finish(self, now: int) -> None:
        if run := self._one_of_mine():
            await self._append(run, now, Kind.END, End(Status.COMPLETED, b"1"))

    async def lie_down(self, now: int) -> None:
        if run := self._one_of_mine():
            seen = max((mail.id for mail in await self.store.mail([(run.key, 0)])), default=0)
            until = self._random.choice([None, now + 30 * TICK])
            status = self._random.choice([Status.WAITING, Status.PARKED])
            await self._append(run, now, Kind.STEP, Suspend(until, seen, "", status))

    async def _append(self, run: RunRow, now: int, kind: Kind, then: End | Suspend) -> None:
        seq = len(await self.store.journal(run.key)) + 1
        entry = Entry(seq, kind, f"/step#{seq}", now)
        append = Append(run.key, run.epoch, [entry], now, then)
        if run.session is not None:
            found = {payload for _, payload in await self.store.session_messages(run.session)}
            said = self._world.said[run.key]
            assert found.issuperset(said), "what it said is there until it has ended"
            said.append(f"{run.id} {seq}".encode())
            append = append._replace(session=[MessageWrite(run.session, said[-1])])
        (outcome,) = await self.store.commit([append])
        # Nobody takes a run from its owner here.
        assert isinstance(outcome, Appended), outcome
        if isinstance(then, End) or outcome.suspended:
            del self.mine[run.key]

    async def post(self, now: int) -> None:
        if self._world.ids:
            kind = self._random.choice([MailKind.MESSAGE, MailKind.PAUSE, MailKind.CANCEL])
            await self.store.post(self._recent(), kind, "", None, now)

    async def expire(self, now: int) -> None:
        await self.store.expire(now, b"late")

    async def resume(self, now: int) -> None:
        if self._world.ids:
            await self.store.resume(self._recent(), now)

    async def release(self, now: int) -> None:
        if run := self._one_of_mine():
            del self.mine[run.key]
            assert await self.store.release(self.name, [(run.key, run.epoch)], now) == 1

    async def forget(self, now: int) -> None:
        if self._random.random() < 0.5:
            self._world.forgotten += await self.store.prune_sessions(now, 2)
        else:
            which = f"rare {self._random.randrange(RARE)}"
            self._world.forgotten += await self.store.delete_session(which)

    def _recent(self) -> RunId:
        return self._random.choice(self._world.ids[-RECENT:])


async def bring_to_an_end(store: Store, name: str) -> None:
    """All that is left, by one worker: it wakes what waits, and ends what it can claim."""
    for row in await store.find(RunFilter(status=frozenset(HALTED), limit=ENDLESS)):
        await store.resume(row.id, AFTERWARDS)
    for _ in range(ENDLESS):
        for row in await store.find(RunFilter(status=frozenset({Status.WAITING}), limit=ENDLESS)):
            await store.post(row.id, MailKind.MESSAGE, "", b"", AFTERWARDS)
        claimed = await claim(store, name, now=AFTERWARDS, alone=True)
        if not claimed:
            return
        for one in claimed:
            entries = [Entry(one.seq + 1, Kind.END, "", AFTERWARDS)]
            end = End(Status.COMPLETED, b"")
            append = Append(one.row.key, one.row.epoch, entries, AFTERWARDS, end)
            assert await store.commit([append]) == [Appended()]


async def many_lives(url: str, seed: int, steps: int) -> None:
    await upgrade(url)
    world = World()
    async with AsyncExitStack() as stack:
        lives: list[Life] = []
        for number in range(STORES * LIVES_PER_STORE):
            if number % LIVES_PER_STORE == 0:
                store = PostgresStore(url)
                await store.open()
                stack.push_async_callback(store.close)
            name = f"w{number}"
            await worker(store, name)
            lives.append(Life(store, name, seed, world))
        await asyncio.gather(*(life.live(steps) for life in lives))
        for life in lives:
            held = [(run.key, run.epoch) for run in life.mine.values()]
            assert await life.store.release(life.name, held, AFTERWARDS) == len(held)
        await bring_to_an_end(lives[0].store, lives[0].name)
        rows = await lives[0].store.find(RunFilter(workflow=WORKFLOW, limit=ENDLESS))
        assert len(rows) == len(set(world.ids)) > 0
        assert [row for row in rows if not row.status.ended] == []
        assert await lives[0].store.check() == []
        assert world.forgotten or steps < 100


async def test_however_lives_meet_every_run_can_end(postgres_url: str) -> None:
    await many_lives(postgres_url, seed=0, steps=60)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 11))
async def test_however_more_lives_meet_every_run_can_end(postgres_url: str, seed: int) -> None:
    await many_lives(postgres_url, seed=seed, steps=300)
