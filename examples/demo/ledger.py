"""The final count: what the services saw against what was needed.

A call is repeated for one of two good reasons: its worker was killed before the answer was
journaled (at least once: nobody can know better), or it was refused and tried again. A call that
arrives although its step is in the journal is a broken promise, and so is a step that never came.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from examples.demo.story import ROWS, Call, Service


@dataclass(frozen=True)
class Count:
    """One line of the final table."""

    needed: int
    made: int  # requests that arrived
    in_flight: int  # made again because the first was in flight at a kill
    refused: int  # made again because the first was refused (429, 503)
    repeated: int  # made although the step was done: must be 0
    lost: int  # needed, and not in the journal: must be 0

    @property
    def unexplained(self) -> int:
        return self.made - self.needed - self.in_flight - self.refused - self.repeated + self.lost


@dataclass(frozen=True)
class Ledger:
    llm: Count
    tools: Count
    effects_needed: int
    effects_made: int  # distinct idempotency keys for which something was done
    steps_needed: int
    steps_done: int
    kills: int
    kills_needed: int

    def complaints(self) -> list[str]:
        found = []
        for name, count in (("LLM calls", self.llm), ("tool calls", self.tools)):
            if count.repeated:
                found.append(f"{count.repeated} {name} were repeated after their step was done")
            if count.lost:
                found.append(f"{count.lost} {name} are not in the journal")
            if count.unexplained:
                found.append(f"{count.unexplained:+d} {name} that nothing explains")
        if self.effects_made != self.effects_needed:
            found.append(f"{self.effects_made} effects, but {self.effects_needed} were needed")
        if self.steps_done != self.steps_needed:
            found.append(f"{self.steps_done} steps done, but {self.steps_needed} were needed")
        if self.kills != self.kills_needed:
            found.append(f"{self.kills} kills, but {self.kills_needed} were planned")
        return found


def count(
    service: Service,
    calls: Iterable[Call],
    journaled_at: Mapping[str, float],
    killed: Mapping[int, float],
) -> Count:
    """journaled_at: when each step was done, by its key; killed: when workers died, by pid."""
    rows = [row for row in ROWS if row.service == service]
    calls = [call for call in calls if call.service == service]
    in_flight = refused = repeated = lost = 0
    for row in rows:
        done_at = journaled_at.get(row.key)
        lost += done_at is None
        for call in filter(row.made, calls):
            if done_at is not None and call.at > done_at:
                repeated += 1
            elif call.status in (429, 503):
                refused += 1
            elif call.pid in killed and (done_at is None or killed[call.pid] < done_at):
                in_flight += 1
    return Count(len(rows), len(calls), in_flight, refused, repeated, lost)


def tally(
    calls: Sequence[Call],
    effects: Collection[str],
    journaled_at: Mapping[str, float],
    killed: Mapping[int, float],
    kills_needed: int,
) -> Ledger:
    return Ledger(
        llm=count("llm", calls, journaled_at, killed),
        tools=count("tool", calls, journaled_at, killed),
        effects_needed=sum(row.service == "tool" for row in ROWS),
        effects_made=len(effects),
        steps_needed=len(ROWS),
        steps_done=sum(row.key in journaled_at for row in ROWS),
        kills=len(killed),
        kills_needed=kills_needed,
    )


def median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
