"""The bell between processes: sockets that come, go, and are left behind."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("holdfast.testing")

from holdfast.store.doorbell import Doorbell, folder_for_sockets  # noqa: E402
from holdfast.store.sqlite import SQLiteStore  # noqa: E402
from holdfast.testing.conformance.given import SIGNAL_SECONDS_MAX, Bell, start  # noqa: E402


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[SQLiteStore, SQLiteStore]]:
    """Two stores on one file know no more of each other than two processes do."""
    stores = SQLiteStore(str(tmp_path / "runs.db")), SQLiteStore(str(tmp_path / "runs.db"))
    for store in stores:
        await store.open()
    yield stores
    for store in stores:
        await store.close()


class Ear:
    def __init__(self, bell: Doorbell) -> None:
        self.rings = 0
        self.event = asyncio.Event()
        self.stop = bell.listen(self.ring)

    def ring(self) -> None:
        self.rings += 1
        self.event.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self.event.wait(), SIGNAL_SECONDS_MAX)
        self.event.clear()


def sockets(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".bell")]


async def test_each_store_hears_the_other(pair: tuple[SQLiteStore, SQLiteStore]) -> None:
    one, two = pair
    bells = Bell(one), Bell(two)
    await start(one, "from one")
    await bells[1].wait()
    await start(two, "from two")
    await bells[0].wait()


async def test_a_listener_that_comes_later_is_found(
    pair: tuple[SQLiteStore, SQLiteStore],
) -> None:
    one, two = pair
    await start(one, "before")
    for n in range(5):
        bell = Bell(two)
        await start(one, f"run-{n}")
        await bell.wait()
        bell.stop()


async def test_a_socket_is_gone_when_nobody_listens(tmp_path: Path) -> None:
    bell = Doorbell(str(tmp_path))
    first, second = Ear(bell), Ear(bell)
    assert len(sockets(tmp_path)) == 1
    first.stop()
    assert len(sockets(tmp_path)) == 1
    second.stop()
    assert sockets(tmp_path) == []
    Ear(bell)
    bell.close()
    assert sockets(tmp_path) == []


async def test_a_dead_listeners_socket_is_cleared_away(tmp_path: Path) -> None:
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(str(tmp_path / "dead.bell"))
    dead.close()
    living, ringing = Doorbell(str(tmp_path)), Doorbell(str(tmp_path))
    ear = Ear(living)
    ringing.ring()
    await ear.wait()
    assert sockets(tmp_path) == [os.path.basename(living._ear.path)]  # type: ignore[union-attr]
    living.close()
    ringing.close()


async def test_a_listener_that_does_not_keep_up_blocks_nobody(tmp_path: Path) -> None:
    deaf = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    deaf.bind(str(tmp_path / "deaf.bell"))
    bell = Doorbell(str(tmp_path))
    for _ in range(5000):
        bell._send()
    assert sockets(tmp_path) == ["deaf.bell"]
    deaf.close()
    bell.close()


async def test_many_rings_become_few_and_the_last_is_heard(tmp_path: Path) -> None:
    listening, ringing = Doorbell(str(tmp_path)), Doorbell(str(tmp_path))
    ear = Ear(listening)
    for _ in range(1000):
        ringing.ring()
    await ear.wait()
    assert ear.rings < 100
    ringing.ring()
    await ear.wait()
    listening.close()
    ringing.close()


async def test_a_ring_from_a_thread_comes_on_the_loop(tmp_path: Path) -> None:
    bell = Doorbell(None)
    ear = Ear(bell)
    await asyncio.to_thread(bell.ring)
    await ear.wait()
    bell.close()


def test_a_long_path_gets_its_sockets_elsewhere(tmp_path: Path) -> None:
    short = str(tmp_path)
    assert folder_for_sockets("/db-workers") == "/db-workers"
    elsewhere = folder_for_sockets("/" + "x" * 200)
    assert elsewhere is not None and len(elsewhere) < 90
    assert elsewhere != folder_for_sockets("/" + "y" * 200)
    assert short


async def test_processes_on_a_long_path_hear_each_other(tmp_path: Path) -> None:
    folder = str(tmp_path / ("x" * 120))
    listening, ringing = Doorbell(folder), Doorbell(folder)
    ear = Ear(listening)
    ringing.ring()
    await ear.wait()
    listening.close()
    ringing.close()
    os.rmdir(listening._folder)  # type: ignore[arg-type]


async def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.symlink_to(tmp_path)
    bell = Doorbell(str(folder))
    Ear(bell)
    assert sockets(tmp_path) == []
    bell.close()
