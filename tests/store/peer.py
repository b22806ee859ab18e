"""A worker that is no more than its signs of life, in the process of a test."""

from __future__ import annotations

import asyncio
import contextlib

from holdfast.errors import StoreUnavailable
from holdfast.store.base import Leasekeeper
from holdfast.store.postgres import PostgresStore
from holdfast.testing.conformance.given import worker
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.proxy import Proxy
from tests.store.locks import Locks, until


class Peer:
    """A worker of this process, with a store of its own."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self.store = PostgresStore(url)
        self.keeper: Leasekeeper
        self.told: dict[str, asyncio.Event] = {}

    async def __aenter__(self) -> Peer:
        await self.store.open()
        self.keeper = await worker(self.store, self.name)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.store.close()

    async def watch_all(self) -> None:
        for other in await self.store.workers():
            if other.id != self.name:
                self.told[other.id] = asyncio.Event()
                self.store.watch(other, self.told[other.id].set)

    @property
    def gone(self) -> set[str]:
        return {id for id, event in self.told.items() if event.is_set()}

    async def ids(self) -> set[str]:
        return {row.id for row in await self.store.workers()}

    async def renewed(self) -> bool:
        return await asyncio.to_thread(self.keeper.renew)

    async def heard(self) -> bool:
        """The same as `renewed`, asked again while there is no connection, as a worker does it."""
        answers: list[bool] = []

        async def answered() -> bool:
            with contextlib.suppress(StoreUnavailable):
                answers.append(await self.renewed())
            return bool(answers)

        await until(answered, f"{self.name} is connected")
        return answers[0]

    async def is_alive(self) -> bool:
        return self.keeper.is_alive()

    async def is_not_alive(self) -> bool:
        return not self.keeper.is_alive()


def through(proxy: Proxy, server: PostgresServer, url: str) -> str:
    return url.replace(f":{server.port}/", f":{proxy.port}/")


async def watched_by(peer: Peer, seen: Locks, name: str) -> None:
    await peer.watch_all()
    await until(lambda: seen.watchers(name), f"somebody waits for a lock of {name}")
