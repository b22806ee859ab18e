"""Awaited children: who hears of their end, also if it was long ago."""

from __future__ import annotations

import pytest

from holdfast.store.base import ContinueAs, Start, Started, Store
from holdfast.testing.conformance.given import (
    NOW,
    append,
    claim,
    do,
    end,
    new_run,
    row,
    started_and_claimed,
    worker,
)
from holdfast.types import Entry, Kind, Mail, MailKind, RunRow, Status

STEP = "/child:c#0"
EVERYWHERE = pytest.mark.parametrize("session", [None, "s"])


async def await_child(
    store: Store, parent: RunRow, step: str = STEP, id: str = "child", **fields: object
) -> Started:
    """What a parent does, also if it has done it before."""
    new = new_run(id, parent=parent.key, parent_step=step, **fields)
    (outcome,) = await store.commit([Start(new, claim_for="w1")])
    assert isinstance(outcome, Started), outcome
    return outcome


async def told(store: Store, parent: RunRow) -> list[Mail]:
    return [mail for mail in await store.mail([(parent.key, 0)]) if mail.kind is MailKind.CHILD]


def delivery(seq: int, mail: Mail) -> Entry:
    return Entry(seq, Kind.CHILD, mail.name, NOW, failed=mail.failed, mail=mail.id)


class AwaitedAgain:
    @EVERYWHERE
    @pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
    async def test_a_parent_that_was_told_is_told_again(
        self, store: Store, session: str | None, status: Status
    ) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent", session=session)
        child = (await await_child(store, parent, session=session)).row
        await end(store, child, 2, status, b"out")
        (first,) = await told(store, parent)
        await do(store, append(parent, delivery(2, first)))
        again = await await_child(store, parent, session=session)
        assert not again.created and again.row.status is status and again.row.output == b"out"
        (second,) = await told(store, parent)
        assert second.id > first.id and second.name == first.name
        assert (second.payload, second.failed) == (b"out", status is not Status.COMPLETED)

    async def test_it_is_told_once_as_long_as_that_was_not_delivered(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent")
        child = (await await_child(store, parent)).row
        await end(store, child, 2)
        before = await told(store, parent)
        await await_child(store, parent)
        await await_child(store, parent)
        assert await told(store, parent) == before and len(before) == 1

    @EVERYWHERE
    async def test_a_parent_that_had_ended_hears_of_it_when_it_goes_on(
        self, store: Store, session: str | None
    ) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent", session=session)
        child = (await await_child(store, parent, session=session)).row
        await end(store, parent, 2, Status.FAILED)
        await end(store, child, 2)
        await store.rerun("parent", 1, NOW, [2])
        await claim(store)
        assert await told(store, parent) == []
        await await_child(store, parent, session=session)
        assert [mail.name for mail in await told(store, parent)] == [STEP]

    @EVERYWHERE
    async def test_it_is_told_where_it_awaits_the_child_now(
        self, store: Store, session: str | None
    ) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent", session=session)
        child = (await await_child(store, parent, session=session)).row
        await end(store, child, 2)
        (first,) = await told(store, parent)
        await do(store, append(parent, delivery(2, first)))
        again = await await_child(store, parent, "/child:c#1", session=session)
        assert again.row.parent_step == "/child:c#1"
        assert [mail.name for mail in await told(store, parent)][1:] == ["/child:c#1"]

    @EVERYWHERE
    async def test_one_that_is_under_way_is_not_taken_from_where_it_is_awaited(
        self, store: Store, session: str | None
    ) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent", session=session)
        child = (await await_child(store, parent, session=session)).row
        again = await await_child(store, parent, "/child:c#1", session=session)
        assert again.row.parent_step == STEP
        await end(store, child, 2)
        assert [mail.name for mail in await told(store, parent)] == [STEP]

    async def test_another_input_is_another_run(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent")
        child = (await await_child(store, parent)).row
        await end(store, child, 2)
        (first,) = await told(store, parent)
        await do(store, append(parent, delivery(2, first)))
        await await_child(store, parent, digest=b"another")
        assert await told(store, parent) == [first]

    async def test_so_is_the_child_of_another(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent")
        other = await started_and_claimed(store, "other")
        child = (await await_child(store, other)).row
        await end(store, child, 2)
        found = await await_child(store, parent)
        assert found.row.parent == other.key
        assert await told(store, parent) == [] and len(await told(store, other)) == 1

    async def test_several_starts_in_one_batch_are_told_each(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent")
        for number in range(2):
            child = (await await_child(store, parent, f"/c#{number}", f"child {number}")).row
            await end(store, child, 2, output=str(number).encode())
        mails = await told(store, parent)
        await do(store, append(parent, *(delivery(2 + n, mail) for n, mail in enumerate(mails))))
        starts = [
            Start(new_run(f"child {n}", parent=parent.key, parent_step=f"/c#{n}")) for n in range(3)
        ]
        await store.commit(starts)
        again = [(mail.name, mail.payload) for mail in await told(store, parent)]
        assert again == [("/c#0", b"0"), ("/c#1", b"1")]


class AwaitedByTheNextGeneration:
    async def next_generation(self, store: Store, parent: RunRow) -> RunRow:
        await do(store, append(parent, then=ContinueAs(b"new", b"d")))
        (claimed,) = [found for found in await claim(store) if found.row.id == "parent"]
        return claimed.row

    @EVERYWHERE
    async def test_it_hears_of_the_end_of_a_child_that_was_under_way(
        self, store: Store, session: str | None
    ) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent", session=session)
        child = (await await_child(store, parent, session=session)).row
        parent = await self.next_generation(store, parent)
        again = await await_child(store, parent, "/child:c#1", session=session)
        assert again.row.parent_step == "/child:c#1"
        await end(store, child, 2)
        assert [mail.name for mail in await told(store, parent)] == ["/child:c#1"]

    @EVERYWHERE
    async def test_it_hears_of_one_that_has_ended(self, store: Store, session: str | None) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent", session=session)
        child = (await await_child(store, parent, session=session)).row
        await end(store, child, 2)
        parent = await self.next_generation(store, parent)
        assert await told(store, parent) == []
        await await_child(store, parent, session=session)
        assert [mail.name for mail in await told(store, parent)] == [STEP]


class RunAgain:
    async def test_a_child_that_goes_on_has_not_ended(self, store: Store) -> None:
        await worker(store)
        parent = await started_and_claimed(store, "parent")
        child = (await await_child(store, parent)).row
        await end(store, child, 2, Status.FAILED, b"error")
        (first,) = await told(store, parent)
        await store.rerun("child", 1, NOW, [2])
        assert await told(store, parent) == []
        (claimed,) = await claim(store)
        assert not (await await_child(store, parent)).row.status.ended
        await end(store, claimed.row, claimed.seq + 1, output=b"out")
        (mail,) = await told(store, parent)
        assert (mail.payload, mail.failed) == (b"out", False) and mail.id > first.id
        assert (await row(store, "child")).parent_step == STEP
