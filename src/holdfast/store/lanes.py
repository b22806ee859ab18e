"""Whose turn it is among the runs of one priority.

A lane is what must not starve another one: a workflow in a queue and, inside of a queue, a fairness
key. Lanes take turns. Those with a key are served by their count, the least served first: a key
that is new, or was away, starts where those that were there all the time are by now. Lanes
without a key take their turns among them by chance, so that nothing has to be written for them.

Names of keys are kept with a hash in front: where there are more of them than a claim looks at, it
begins at a random place, and any name is as likely to be there as any other.
"""

from __future__ import annotations

import random
import zlib
from typing import Generic, TypeVar

T = TypeVar("T")

LANES_MAX = 1000
"""So many keys of a queue are looked at by one claim."""
HASHES = 0x10000


def stored_key(fairness_key: str) -> str:
    if not fairness_key:
        return ""
    return f"{zlib.crc32(fairness_key.encode('utf-8', 'surrogatepass')) % HASHES:04x}{fairness_key}"


def shown_key(stored: str) -> str:
    return stored[4:]


def random_start() -> str:
    return f"{random.randrange(HASHES):04x}"


class Lane(Generic[T]):
    def __init__(self, workflow: str, queue: str, key: str = "", served: int = 0) -> None:
        self.workflow = workflow
        self.queue = queue
        self.key = key  # as it is stored
        self.served = served  # where it stands among the keys of its queue
        self.place = random.random()  # among those that stand equal
        self.due: list[T] = []


class Line(Generic[T]):
    """The lanes of one priority, and in which order their runs go."""

    def __init__(self, lanes: list[Lane[T]]) -> None:
        self.lanes = lanes
        self._lowest: dict[str, int] = {}
        for lane in lanes:
            if lane.key:
                lowest = self._lowest.get(lane.queue, lane.served)
                self._lowest[lane.queue] = min(lane.served, lowest)

    def _tag(self, lane: Lane[T], nth: int) -> tuple[int, float]:
        ahead = lane.served - self._lowest[lane.queue] if lane.key else 0
        return ahead + nth, lane.place

    def first(self, count: int) -> list[Lane[T]]:
        """The lanes to look into, when so many runs are wanted: of those with a key, each has a run
        in line; of the others that is not known."""
        keyed = sorted((lane for lane in self.lanes if lane.key), key=lambda one: self._tag(one, 0))
        return [lane for lane in self.lanes if not lane.key] + keyed[:count]

    def in_turn(self) -> list[tuple[Lane[T], T]]:
        """What is due in the lanes, one of each in turn."""
        found = [
            (self._tag(lane, nth), lane, run)
            for lane in self.lanes
            for nth, run in enumerate(lane.due)
        ]
        found.sort(key=lambda one: one[0])
        return [(lane, run) for _, lane, run in found]
