"""A store that outlives the apps which open and close it, as a file outlives a process.

It stands before a real store and adds nothing to it. A subclass may stand in the way of a commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.store import open_store
from holdfast.store.base import Operation, Outcome, Store


class KeptStore:
    def __init__(self, url: str = "sqlite://:memory:") -> None:
        self.url = url
        self._kept: Store = open_store(url)

    async def open(self) -> None:
        await self._kept.open()  # the second time nothing happens

    async def close(self) -> None:
        """What an app calls, which is not the end."""

    async def discard(self) -> None:
        await self._kept.close()

    async def commit(self, operations: Sequence[Operation], *, request: str = "") -> list[Outcome]:
        return await self._kept.commit(operations, request=request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kept, name)
