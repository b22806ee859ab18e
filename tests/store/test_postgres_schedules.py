"""Changes of schedules whose answer was lost are sent again, and done once."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres_open import upgrade
from holdfast.store.postgres_values import run_values
from holdfast.testing.conformance.given import NOW, SECOND, new_run
from holdfast.testing.conformance.schedules import only, put, tick


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    await upgrade(postgres_url)
    made = PostgresStore(postgres_url)
    await made.open()
    yield made
    await made.close()


@pytest.mark.parametrize("session", [None, "s"])
async def test_a_tick_that_is_sent_again_is_made_once(
    store: PostgresStore, session: str | None
) -> None:
    seen = await put(store)
    run = new_run("nightly@1", session=session)
    place = (seen.name, seen.next_at, seen.updated_at, NOW + SECOND, NOW)
    values = (*place, *run_values(run), run.session, run.on_busy)
    request = uuid.uuid4()
    lost = await store._link.write("tick", *values, id=request)
    found = await store.get("nightly@1")
    assert found is not None and lost == [1, 1, found.key]
    assert await store._link.write("tick", *values, id=request, again=True) == lost
    assert (await only(store)).next_at == NOW + SECOND
    # Under an id of its own it is another try at the same tick.
    assert await store._link.write("tick", *values) == [0, 0, 0]
    assert not (await tick(store, seen, "nightly@2")).moved


async def test_a_tick_that_never_arrived_is_made_when_it_is_sent_again(
    store: PostgresStore,
) -> None:
    seen = await put(store)
    run = new_run("nightly@1")
    place = (seen.name, seen.next_at, seen.updated_at, NOW + SECOND, NOW)
    values = (*place, *run_values(run), run.session, run.on_busy)
    moved, *_ = await store._link.write("tick", *values, id=uuid.uuid4(), again=True)
    assert moved == 1 and await store.get("nightly@1") is not None


async def test_dropped_ticks_and_deletions_that_are_sent_again_are_done_once(
    store: PostgresStore,
) -> None:
    seen = await put(store)
    request = uuid.uuid4()
    place = (seen.name, seen.next_at, seen.updated_at, NOW + SECOND, None)
    for again in (False, True):
        assert await store._link.write("drop_ticks", *place, id=request, again=again) == [1]
    request = uuid.uuid4()
    assert await store._link.write("delete_schedule", "nightly", id=request) == [1]
    await put(store)
    assert await store._link.write("delete_schedule", "nightly", id=request, again=True) == [1]
    assert (await only(store)).name == "nightly", "it came back after it had been deleted"
