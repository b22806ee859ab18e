"""Ids and times that are the same on every replay."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid

from holdfast.adapters._shared import Place


class Ids:
    """Made of a seed and a counter; in a step, which is not replayed, by chance."""

    def __init__(self, seed: uuid.UUID, place: Place) -> None:
        self._seed, self._place = seed, place
        self._count = itertools.count()

    def __call__(self) -> str:
        if not self._place.is_near:
            return str(uuid.uuid4())
        return str(uuid.uuid5(self._seed, str(next(self._count))))


class Times:
    """The run's own time, which stands still between completions.

    Pieces of a stream come before the completion of their call, and on replay after it: they have
    the time of the last event that was kept.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self.last = 0.0

    def __call__(self) -> float:
        if self._place.is_near and self._place.is_in_body:
            return asyncio.get_running_loop().time()
        return time.time()

    def stamp(self) -> float:
        """For an event that is kept. No two are the same, because some services sort by it."""
        self.last = max(self(), self.last + 1e-6)
        return self.last
