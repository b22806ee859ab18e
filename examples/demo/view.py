"""What a viewer is shown of each step, derived from the journal and the services' logs. Pure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from examples.demo.director import Director
from examples.demo.story import ROWS, Call, Row
from holdfast.types import Kind

State = Literal["", "running", "done", "killed", "backing off", "waiting", "answered"]

ANSWERED, REFUSED, KILLED, IN_FLIGHT = "✔", "↻", "✖", "●"


@dataclass(frozen=True)
class StepView:
    row: Row
    state: State
    worker: str = ""
    tries: str = ""  # one sign for each request
    note: str = ""


def steps(director: Director) -> list[StepView]:
    calls = director.calls
    done = director.done
    views = [_step(director, row, [c for c in calls if row.made(c)]) for row in ROWS]
    for index, view in enumerate(views):
        row = view.row
        if row.service == "outer" and row.key not in done:
            inside = [v for v in views if v.row.key.startswith(row.key + "/")]
            busy = [v for v in inside if v.state == "running"]
            if busy:
                views[index] = StepView(row, "running", busy[0].worker)
            elif any(v.state == "killed" for v in inside):
                views[index] = StepView(row, "killed")
            elif any(v.state for v in inside):
                views[index] = StepView(row, "running")
    return views


def _step(director: Director, row: Row, calls: list[Call]) -> StepView:
    tries = "".join(_sign(director, call) for call in calls)
    entry = director.done.get(row.key)
    if entry is not None:
        return StepView(row, "done", director.worker_of(entry), tries)
    if row.service == "human":
        return StepView(row, director.approval)
    if not calls:
        return StepView(row, "")
    last, sign = calls[-1], tries[-1]
    worker = director.crew.of(last.pid).name
    if sign == REFUSED:
        return StepView(row, "backing off", worker, tries, _back_off(director, row))
    return StepView(row, "killed" if sign == KILLED else "running", worker, tries)


def _sign(director: Director, call: Call) -> str:
    if call.status in (429, 503):
        return REFUSED
    killed_at = director.crew.of(call.pid).killed_at
    if killed_at is not None and (call.ended_at is None or call.ended_at > killed_at):
        return KILLED
    return IN_FLIGHT if call.status is None else ANSWERED


def _back_off(director: Director, row: Row) -> str:
    due = [e.due_at for e in director.entries if e.kind is Kind.ATTEMPT and e.key == row.key]
    if not due or due[-1] is None:
        return ""
    return f"{max(0.0, due[-1] / 1e6 - time.time()):.1f} s"


def claimant(director: Director) -> str:
    """Who owns the run, by the journal."""
    claims = [entry for entry in director.entries if entry.kind is Kind.CLAIM]
    owner = director.row.owner if director.row else None
    return director.names.get(claims[-1].key, "") if claims and owner else ""
