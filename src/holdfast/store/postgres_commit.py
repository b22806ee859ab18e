"""Committing a batch: one call for all appends, one for all starts.

When a call fails as a whole, because one of its operations is to blame or was superseded at this
very moment, its operations are sent one by one, and the bad one fails alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from itertools import groupby

from holdfast.errors import IdReused, LeaseLost, SessionBusy, StoreError, StoreUnavailable
from holdfast.store import postgres_errors as errors
from holdfast.store.base import Append, Appended, Operation, Outcome, Refused, Start, Started
from holdfast.store.postgres_link import Link
from holdfast.store.postgres_values import (
    append_values,
    entry_values,
    is_plain,
    refuse_gaps,
    run_values,
    start_values,
)
from holdfast.store.rows import retired, row_of, run_row
from holdfast.types import RunKey

_IN_DOUBT = (errors.SUPERSEDED, errors.UNIQUE_VIOLATION)


class Committing:
    def __init__(self, link: Link, sql: Mapping[str, str]) -> None:
        self._link = link
        self._sql = sql
        self._unanswered: set[str] = set()  # requests that are sent again, if at all, as such

    async def commit(self, operations: Sequence[Operation], request: str) -> list[Outcome]:
        request = request or uuid.uuid4().hex
        outcomes: list[Outcome] = []
        try:
            for number, part in enumerate(_parts(operations)):
                outcomes += await self._commit_part(part, f"{request}/{number}")
        except StoreUnavailable:
            self._unanswered.add(request)
            raise
        self._unanswered.discard(request)
        return outcomes

    async def _commit_part(self, part: list[Operation], request: str) -> list[Outcome]:
        try:
            return await self._send(part, request)
        except StoreError as error:
            if type(error) is not StoreError:
                raise
            if len(part) == 1:
                return [await self._refusal(part[0], error, request)]
        # One of them is to blame, or was superseded at this very moment: they go one by one.
        outcomes: list[Outcome] = []
        for number, operation in enumerate(part):
            outcomes += await self._commit_part([operation], f"{request}/{number}")
        return outcomes

    async def _refusal(self, operation: Operation, error: StoreError, request: str) -> Outcome:
        if errors.code_of(error.__cause__ or error) in _IN_DOUBT:
            return (await self._send([operation], f"{request}/again"))[0]
        name = (
            f"The start of run {operation.run.id!r}"
            if isinstance(operation, Start)
            else f"An append to run {operation.run!r}"
        )
        refusal = StoreError(f"{name} could not be written: {error.__cause__ or error}")
        refusal.__cause__ = error
        return Refused(refusal)

    async def _send(self, part: list[Operation], request: str) -> list[Outcome]:
        first = part[0]
        if isinstance(first, Append):
            return await self._append([op for op in part if isinstance(op, Append)], request)
        starts = [op for op in part if isinstance(op, Start)]
        if starts[0].run.session is not None:
            return [await self._start_in_session(starts[0], request)]
        return await self._start(starts, request)

    async def _write(self, function: str, request: str, *values: object) -> list[int]:
        again = request.partition("/")[0] in self._unanswered
        id = uuid.uuid5(uuid.NAMESPACE_OID, request)
        return await self._link.write(function, *values, id=id, again=again)

    async def _append(self, appends: list[Append], request: str) -> list[Outcome]:
        try:
            for append in appends:
                refuse_gaps(append)
        except ValueError as error:
            raise StoreError(str(error)) from error
        first = appends[0]
        if len(appends) == 1 and is_plain(first):
            values = entry_values(first, first.entries[0])
            answer = await self._write("append_one", request, *values)
        else:
            answer = await self._write("append", request, *append_values(appends))
        outcomes: list[Outcome] = []
        for append, code in zip(appends, answer, strict=True):
            if code == 0:
                outcomes.append(Refused(await self._lease_lost(append)))
            else:
                outcomes.append(Appended(suspended=code == 2))
        return outcomes

    async def _lease_lost(self, append: Append) -> LeaseLost:
        found = await self._link.read(self._sql["who_owns"], append.run)
        if not found:
            return LeaseLost(f"The run of key {append.run} is gone; nothing was written.")
        id, status, owner, epoch, newest = found[0]
        if owner and epoch == append.epoch and append.entries:
            missing = append.entries[0].seq - 1 - newest
            return LeaseLost(
                f"The server has lost the last {missing} entries of run {id!r}, though it had "
                "acknowledged them: it is a standby that was promoted too early. The run goes on "
                "from what is left of its journal, and these steps are done again."
            )
        whose = f"worker {owner} owns it" if owner else "nobody owns it"
        return LeaseLost(
            f"Run {id!r} was taken from this worker: it is {status}, {whose} at epoch {epoch}, and "
            f"this worker's epoch was {append.epoch}. Nothing was written."
        )

    async def _start(self, starts: list[Start], request: str) -> list[Outcome]:
        worker = next((start.claim_for for start in starts if start.claim_for), None)
        answer = await self._write("start", request, worker, *start_values(starts))
        pairs = zip(answer[::2], answer[1::2], strict=True)
        return [
            await self.started(start, code, key)
            for start, (code, key) in zip(starts, pairs, strict=True)
        ]

    async def _start_in_session(self, start: Start, request: str) -> Outcome:
        new, claim = start.run, start.claim_for is not None
        values = (start.claim_for, claim, *run_values(new), new.session, new.on_busy)
        code, key = await self._write("start_in_session", request, *values)
        return await self.started(start, code, key)

    async def started(self, start: Start, code: int, key: RunKey) -> Outcome:
        new = start.run
        if code in (1, 2):
            owner = start.claim_for if code == 2 else None
            return Started(row_of(new, key, owner), created=True, claimed=code == 2)
        name, which = ("run_by_id", new.id) if code == 0 else ("run_by_key", key)
        found = await self._link.read(self._sql[name], which)
        if not found:
            stones = await self._link.read(self._sql["tombstone"], new.id)
            if stones:
                return Refused(retired(new.id, *stones[0]))
            return Refused(StoreUnavailable(f"Run {new.id!r} was deleted just now; try again."))
        row = run_row(found[0])
        if code == 4:
            return Refused(
                SessionBusy(
                    f"Session {new.session!r} is busy with run {row.id!r}, so run {new.id!r} was "
                    'not accepted: on_busy="reject".'
                )
            )
        if code == 5:
            return Refused(
                IdReused(
                    f"The id {new.id!r} was used before, by a start that joined run {row.id!r} "
                    "with other arguments; use another id, or the same arguments."
                )
            )
        return Started(row, created=False, joined=code == 3)


def _parts(operations: Sequence[Operation]) -> list[list[Operation]]:
    """What goes in one call each: appends of different runs; starts outside of sessions."""
    parts: list[list[Operation]] = []
    for kind, group in groupby(operations, _kind):
        seen: set[RunKey] = set()
        parts.append([])
        for operation in group:
            if isinstance(operation, Append):
                if operation.run in seen:
                    seen.clear()
                    parts.append([])
                seen.add(operation.run)
            elif kind == "in session" and parts[-1]:
                parts.append([])
            parts[-1].append(operation)
    return parts


def _kind(operation: Operation) -> str:
    if isinstance(operation, Append):
        return "append"
    return "start" if operation.run.session is None else "in session"
