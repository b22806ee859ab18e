"""The store for many machines: one PostgreSQL database, shared by any number of workers.

Every verb that writes is one call of a function in the database (sql/postgres/functions), which
is one statement and one transaction. What a lost connection leaves in doubt is sent again under the
id of its request (postgres_link.py). What must not wait for the event loop is in postgres_side.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast.clock import Micros
from holdfast.errors import (
    AlreadyEnded,
    AlreadyResolved,
    LeaseLost,
    NotResumable,
    StoreError,
    StoreUnavailable,
    UnknownRun,
)
from holdfast.store import host, postgres_backup, postgres_open, queries
from holdfast.store import postgres_errors as errors
from holdfast.store.base import (
    Claimed,
    Leasekeeper,
    Operation,
    Outcome,
    Reaped,
    Started,
)
from holdfast.store.marks import LEFT, store_moved
from holdfast.store.postgres_address import parse
from holdfast.store.postgres_bell import Bell, soon
from holdfast.store.postgres_commit import Committing
from holdfast.store.postgres_find import conditions
from holdfast.store.postgres_link import LONG_READ_SECONDS, Link
from holdfast.store.postgres_queues import Queues
from holdfast.store.postgres_schedules import Schedules
from holdfast.store.postgres_servers import Servers
from holdfast.store.postgres_side import Side
from holdfast.store.postgres_values import run_values
from holdfast.store.rows import busy_with, entry, mail, promise, row_of, run_row
from holdfast.types import (
    Entry,
    Mail,
    MailKind,
    NewRun,
    PromiseRow,
    RunFilter,
    RunId,
    RunKey,
    RunRow,
    WorkerId,
    WorkerRow,
)

HOLD_SECONDS = 10.0
FORGET_REQUESTS = 10_000
FORGET_TIMES_MAX = 1000
_ANY_STRIKES = (1 << 31) - 1
_SUSPECT_STRIKES = 2


class PostgresStore(Queues, Schedules):
    commits_at_once = 2
    poll_seconds = 20.0

    def __init__(self, url: str) -> None:
        self.url = url
        self.address = parse(url)
        self._sql = {
            name: sql.replace("{schema}", self.address.schema)
            for name, sql in queries.load("postgres").items()
        }
        self._servers = Servers(self.address)
        self._link = Link(self._servers)
        self._side: Side | None = None
        self._bell = Bell()
        self._committing = Committing(self._link, self._sql)

    # Life

    async def open(self) -> None:
        if self._link.is_open:
            return
        await self._link.open()
        try:
            await postgres_open.check(self._link)
        except BaseException:
            await self._link.close()
            raise

    async def close(self) -> None:
        side, self._side = self._side, None
        if side is not None:
            await asyncio.to_thread(side.close)
        await self._link.close()

    # Runs, by their owner

    async def commit(self, operations: Sequence[Operation], *, request: str = "") -> list[Outcome]:
        return await self._committing.commit(operations, request)

    async def claim(
        self,
        worker: WorkerId,
        workflows: Sequence[str],
        now: Micros,
        limit: int,
        *,
        alone: bool = False,
    ) -> list[Claimed]:
        try:
            keys = await self._link.write("claim", worker, list(workflows), now, limit, alone)
        except StoreError as error:
            if errors.code_of(error.__cause__ or error) != errors.NOT_REGISTERED:
                raise
            raise LeaseLost(
                f"Worker {worker} is not registered: it was taken for dead, or never registered."
            ) from None
        if not keys:
            return []
        rows = await self._link.read(self._sql["claimed_runs"], keys, worker)
        return [Claimed(run_row(row), row[28]) for row in rows]

    async def journal(self, run: RunKey) -> list[Entry]:
        rows = await self._link.read(self._sql["journal"], run, seconds=LONG_READ_SECONDS)
        return [entry(row) for row in rows]

    async def mail(self, runs: Sequence[tuple[RunKey, int]]) -> list[Mail]:
        if not runs:
            return []
        keys, seen = [run for run, _ in runs], [id for _, id in runs]
        return [mail(row) for row in await self._link.read(self._sql["mail"], keys, seen)]

    async def release(
        self, worker: WorkerId, runs: Sequence[tuple[RunKey, int]], now: Micros
    ) -> int:
        keys, epochs = [run for run, _ in runs], [epoch for _, epoch in runs]
        return (await self._link.write("release", worker, keys, epochs, now))[0]

    async def owned(self, worker: WorkerId) -> list[tuple[RunKey, int]]:
        rows = await self._link.read(self._sql["owned"], worker)
        return [(row[0], row[1]) for row in rows]

    async def next_ready(
        self, workflows: Sequence[str], *, alone: bool = True, worker: WorkerId | None = None
    ) -> Micros | None:
        strikes = _ANY_STRIKES if alone else _SUSPECT_STRIKES
        (row,) = await self._link.read(self._sql["next_ready"], list(workflows), strikes, worker)
        at: Micros | None = row[0]
        return at

    async def expire(self, now: Micros, output: bytes, *, limit: int = 100) -> int:
        return (await self._link.write("expire", now, output, limit))[0]

    # Runs, by outsiders

    async def get(self, run: RunId) -> RunRow | None:
        found = await self._link.read(self._sql["run_by_id"], run)
        return run_row(found[0]) if found else None

    async def settled(self, runs: Sequence[RunId]) -> list[RunRow]:
        found = await self._link.read(self._sql["settled_runs"], runs)
        if not found and (left := await self._link.read(self._sql["has_left"])):
            raise store_moved(LEFT, left[0][0], self.address.shown)
        return [run_row(row) for row in found]

    async def find(self, which: RunFilter) -> list[RunRow]:
        where, values = conditions(which, self.address.schema)
        rows = await self._link.read(f"{self._sql['find_runs']} {where}", *values)
        return [run_row(row) for row in rows]

    async def post(
        self, run: RunId, kind: MailKind, name: str, payload: bytes | None, now: Micros
    ) -> Mail:
        code, *rest = await self._link.write("post", run, kind.value, name, payload, now)
        if code == 1:
            raise UnknownRun(f"There is no run {run!r}.")
        if code == 2:
            row = await self.get(run)
            how = row.status if row is not None else "deleted"
            raise AlreadyEnded(f"Run {run!r} has ended ({how}); it takes no mail.")
        if code == 3:
            raise AlreadyResolved(
                f"Promise {name!r} of run {run!r} was answered before; the first answer stands."
            )
        id, key, is_new = rest
        there = [] if is_new else await self._link.read(self._sql["mail_by_id"], id)
        # What was there may have been taken back since: a pause, by whoever resumes the run.
        return mail(there[0]) if there else Mail(id, key, kind, name, payload, now)

    async def resume(self, run: RunId, now: Micros) -> RunRow:
        (code,) = await self._link.write("resume", run, now)
        return await self._gone_on(run, code, "only a paused, parked or quarantined run is resumed")

    async def rerun(self, run: RunId, epoch: int, now: Micros, drop: Sequence[int]) -> RunRow:
        (code,) = await self._link.write("rerun", run, epoch, now, list(drop))
        if code == 3:
            raise NotResumable(f"Run {run!r} went on meanwhile: somebody else ran it again.")
        return await self._gone_on(run, code, "only a failed or cancelled run is run again")

    async def _gone_on(self, run: RunId, code: int, rule: str) -> RunRow:
        row = await self.get(run)
        if code == 1 or row is None:
            raise UnknownRun(f"There is no run {run!r}.")
        if code == 2:
            raise NotResumable(f"Run {run!r} is {row.status}: {rule}.")
        return row

    async def fork(self, run: RunId, seq: int, new: NewRun) -> Started:
        code, key = await self._link.write("fork", run, seq, *run_values(new), new.session)
        if code == 1:
            raise UnknownRun(f"There is no run {run!r}.")
        if key:
            return Started(row_of(new, key, None), created=True)
        row = await self.get(new.id)
        if row is None:
            raise StoreUnavailable(f"Run {new.id!r} was deleted just now; try again.")
        return Started(row, created=False)

    async def promises(self, run: RunKey) -> list[PromiseRow]:
        return [promise(row) for row in await self._link.read(self._sql["promises"], run)]

    async def children(self, run: RunKey) -> list[RunRow]:
        return [run_row(row) for row in await self._link.read(self._sql["children"], run)]

    async def ahead(self, run: RunKey, now: Micros) -> RunRow | None:
        found = await self._link.read(self._sql["ahead"], run, now)
        return run_row(found[0]) if found else None

    # Sessions

    async def session_state(self, session: str) -> dict[str, bytes]:
        rows = await self._link.read(self._sql["state"], session)
        return {row[0]: row[1] for row in rows}

    async def session_messages(self, session: str, *, after: int = 0) -> list[tuple[int, bytes]]:
        sql = self._sql["messages"]
        rows = await self._link.read(sql, session, after, seconds=LONG_READ_SECONDS)
        return [(row[0], row[1]) for row in rows]

    async def delete_session(self, session: str) -> bool:
        gone, open = await self._link.write("delete_session", session)
        if open:
            found = await self._link.read(self._sql["run_by_key"], open)
            raise busy_with(session, run_row(found[0]).id if found else "?")
        return gone > 0

    async def prune_sessions(self, used_before: Micros, limit: int) -> int:
        (row,) = await self._link.read(self._sql["prune_sessions"], used_before, limit)
        return int(row[0])

    # Workers

    def _sidekick(self) -> Side:
        if self._side is None:
            self._side = Side(self._servers, self._bell.notified)
        return self._side

    async def register(self, worker: WorkerRow) -> Leasekeeper:
        name, pid, began = host.this_process()
        worker = worker._replace(host=name, pid=pid, process_started=began)
        side = self._sidekick()
        try:
            # The locks come first: whoever sees the row may look at them at once.
            await side.hold(worker.id, HOLD_SECONDS)
            await postgres_open.check_rights(self._link)
            await self._link.read(
                f'SELECT "{self.address.schema}".register($1, $2, $3, $4, $5, $6, $7)',
                worker.id,
                worker.host,
                worker.pid,
                worker.process_started,
                worker.started_at,
                worker.lease_seconds,
                worker.note,
            )
        except BaseException:
            await asyncio.to_thread(side.release, worker.id)
            raise
        return Keeper(side, worker, self.address.schema)

    async def deregister(self, worker: WorkerId) -> None:
        await self._link.read(self._sql["deregister"], worker)
        if self._side is not None:
            await asyncio.to_thread(self._side.release, worker)

    async def workers(self) -> list[WorkerRow]:
        return [WorkerRow(*row) for row in await self._link.read(self._sql["workers"])]

    async def is_dead(self, worker: WorkerRow) -> bool:
        (row,) = await self._link.read(self._sql["is_dead"], worker.id)
        return bool(row[0])

    def watch(self, worker: WorkerRow, callback: Callable[[], None]) -> Callable[[], None]:
        side, loop = self._sidekick(), asyncio.get_running_loop()
        stopped = False

        def ring() -> None:
            if not stopped:
                callback()

        def died() -> None:
            soon(loop, ring)

        def stop() -> None:
            nonlocal stopped
            stopped = True
            side.soon(side.watch.remove, worker.id, died)

        side.soon(side.watch_over, worker.id, died)
        return stop

    async def reap(self, worker: WorkerId, now: Micros, *, dead: bool = False) -> Reaped | None:
        found = await self._link.read(self._sql["worker"], worker)
        if not found:
            return None
        rows = await self._link.read(self._sql["reap"], worker, now, dead)
        if not rows:
            return None
        runs = [row[0] for row in rows[1:] if not row[1]]
        return Reaped(WorkerRow(*found[0]), runs, [row[0] for row in rows[1:] if row[1]])

    # The rest

    async def time(self) -> Micros | None:
        (row,) = await self._link.read(self._sql["time"])
        return int(row[0])

    def listen(self, callback: Callable[[], None], *, ends: bool = True) -> Callable[[], None]:
        stop = self._bell.listen(callback, ends)
        self._sidekick().listen()
        return stop

    async def prune(
        self, ended_before: Micros, limit: int, *, now: Micros = 0, keep_ids_until: Micros = 0
    ) -> int:
        values = (ended_before, limit, now, keep_ids_until)
        (row,) = await self._link.read(self._sql["prune"], *values)
        # A busy store writes more answers in a day than runs: these go whether runs do or not.
        for _ in range(FORGET_TIMES_MAX):
            (gone,) = await self._link.read(self._sql["forget_requests"], FORGET_REQUESTS)
            if gone[0] < FORGET_REQUESTS:
                break
        return int(row[0])

    async def backup(self, path: str) -> None:
        await postgres_backup.backup(self.url, path)

    async def check(self) -> list[str]:
        orphans = await self._link.read(self._sql["orphans"])
        torn = await self._link.read(self._sql["gaps"])
        return [f"run {row[0]!r} is owned by a worker nobody knows" for row in orphans] + [
            f"the journal of run {row[0]!r} has gaps" for row in torn
        ]


class Keeper:
    """Renews one worker's lease over a lifeline, whatever the event loop does."""

    def __init__(self, side: Side, worker: WorkerRow, schema: str) -> None:
        self._side = side
        self._worker = worker
        self._hand_back = f'SELECT "{schema}".hand_back($1, $2)'

    def is_alive(self) -> bool:
        return self._side.is_held(self._worker.id)

    def renew(self) -> bool:
        id, seconds = self._worker.id, self._worker.lease_seconds / 3
        return self._side.renew(id, seconds)

    def hand_back(self, note: str) -> int:
        return int(self._side.fetchval(HOLD_SECONDS, self._hand_back, self._worker.id, note))

    def close(self) -> None:
        self._side.release(self._worker.id)
