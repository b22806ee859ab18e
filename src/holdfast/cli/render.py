"""What commands print: tables for people, JSON for programs.

Without a terminal there is no colour, no frame and no line break inside a row. Text that users
recorded cannot move the cursor: what is not printable is escaped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast import codec
from holdfast.clock import Micros, to_datetime
from holdfast.codec.words import awaited
from holdfast.errors import NotDecodable
from holdfast.types import Entry, PromiseRow, QueueRow, RunRow, ScheduleRow, Status, WorkerRow

TEXT_MAX = 60
WIDTH_WITHOUT_TERMINAL = 10_000

_COLOURS = {
    Status.RUNNING: "cyan",
    Status.COMPLETED: "green",
    Status.FAILED: "red",
    Status.QUARANTINED: "red",
    Status.PARKED: "yellow",
    Status.PAUSED: "yellow",
}


@dataclass(frozen=True, slots=True)
class Styled:
    text: str
    style: str


Cell = str | Styled


# Text


def clean(text: str) -> str:
    """The text on one line, with what could confuse a terminal made visible."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, limit: int = TEXT_MAX) -> str:
    text = clean(text[: limit + 1])
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def when(at: Micros | None) -> str:
    return "" if at is None else f"{to_datetime(at):%Y-%m-%d %H:%M:%S}Z"


def span(micros: Micros | None) -> str:
    if micros is None:
        return ""
    seconds = max(0, micros) / 1e6
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def payload(data: bytes | None, *, failed: bool = False) -> str:
    """A recorded value in one short line."""
    if data is None:
        return ""
    if failed:
        try:
            name, message, _ = codec.error_summary(data)
        except NotDecodable:
            return shortened(data.decode(errors="backslashreplace"))
        return shortened(f"{name.rpartition('.')[2]}: {message}")
    return shortened(data[: 4 * TEXT_MAX].decode(errors="backslashreplace"))


# Tables


def print_runs(rows: Sequence[RunRow]) -> None:
    lines = [
        (
            row.id,
            row.workflow,
            _status(row.status),
            when(row.created_at),
            row.session or "",
            shortened(_remark(row)),
        )
        for row in rows
    ]
    _print_table(("id", "workflow", "status", "started", "session", "remark"), lines)


def print_run(
    row: RunRow, entries: Sequence[Entry], promises: Sequence[PromiseRow], hidden: int
) -> None:
    facts: list[tuple[str, Cell]] = [
        ("run", row.id),
        ("workflow", row.workflow),
        ("status", _status(row.status)),
        ("remark", row.reason or ""),
        ("session", row.session or ""),
        ("worker", row.owner or ""),
        ("started", when(row.created_at)),
        ("ended", when(row.ended_at)),
        ("deadline", when(row.deadline_at)),
        ("generation", str(row.generation) if row.generation > 1 else ""),
        ("input", payload(row.input)),
        ("output", payload(row.output, failed=row.status is Status.FAILED)),
    ]
    _print_table(("", ""), [fact for fact in facts if fact[1]], head=False)
    print()
    if hidden:
        print(f"({hidden} earlier entries; all of them: --limit 0)")
    columns = ("#", "kind", "key", "try", "took", "input", "output")
    _print_table(columns, [_entry_line(entry) for entry in entries])
    waiting = [promise for promise in promises if not promise.resolved]
    if waiting and not row.status.ended:
        print("\nopen promises:")
        lines = [(one.name, one.kind, awaited(one.type), payload(one.prompt)) for one in waiting]
        _print_table(("name", "kind", "awaits", "prompt"), lines)


def print_workers(found: Sequence[tuple[WorkerRow, str]]) -> None:
    lines = [
        (row.id, str(row.pid), health, when(row.started_at), shortened(row.note))
        for row, health in found
    ]
    _print_table(("id", "pid", "health", "started", "note"), lines)


def print_schedules(rows: Sequence[ScheduleRow]) -> None:
    lines = [
        (
            row.name,
            row.workflow,
            row.cron if row.cron.startswith("@") else f"{row.cron} {row.zone}",
            row.catch_up,
            Styled("paused", "yellow") if row.paused else when(row.next_at) or "never",
            when(row.last_at),
            row.last_run or "",
        )
        for row in rows
    ]
    columns = ("name", "workflow", "ticks", "catch up", "next", "last", "last run")
    _print_table(columns, lines)


def print_queues(found: Sequence[tuple[QueueRow, str]]) -> None:
    lines = [
        (
            row.name,
            _limits(row) or "none",
            str(row.running),
            str(row.ready),
            when(row.oldest),
            Styled("paused", "yellow") if row.paused else waits_for,
        )
        for row, waits_for in found
    ]
    _print_table(("name", "limits", "running", "ready", "oldest", "waiting for"), lines)


def _limits(row: QueueRow) -> str:
    parts = []
    if row.concurrency is not None:
        parts.append(f"{row.concurrency} at once")
    if row.per_worker is not None:
        parts.append(f"{row.per_worker} per worker")
    if row.rate_count is not None:
        burst = f", {row.rate_burst} early" if row.rate_burst > 1 else ""
        parts.append(f"{row.rate_count} in {span(row.rate_micros)}{burst}")
    return ", ".join(parts)


def _entry_line(entry: Entry) -> tuple[Cell, ...]:
    output = payload(entry.output, failed=entry.failed)
    return (
        str(entry.seq),
        entry.kind.value,
        entry.key,
        str(entry.attempt) if entry.attempt else "",
        span(_took(entry)),
        payload(entry.input),
        Styled(output, "red") if entry.failed else output,
    )


def _took(entry: Entry) -> Micros | None:
    return None if entry.started_at is None else entry.at - entry.started_at


def _remark(row: RunRow) -> str:
    if row.status is Status.FAILED:
        return payload(row.output, failed=True)
    return row.reason or ""


def _status(status: Status) -> Styled:
    return Styled(status.value, _COLOURS.get(status, ""))


def _print_table(
    columns: Sequence[str], lines: Iterable[Sequence[Cell]], *, head: bool = True
) -> None:
    # Here, because every worker process that replaces a dead one imports this module in vain.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    is_terminal = sys.stdout.isatty()
    console = Console(width=None if is_terminal else WIDTH_WITHOUT_TERMINAL, highlight=False)
    table = Table(
        box=SIMPLE_HEAD if is_terminal and head else None, show_header=head, pad_edge=False
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    for line in lines:
        cells = [c if isinstance(c, Styled) else Styled(c, "") for c in line]
        table.add_row(*(Text(clean(cell.text), cell.style) for cell in cells))
    console.print(table)


# JSON


def print_json(data: object) -> None:
    print(json.dumps(data, indent=2))


def run_data(row: RunRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "workflow": row.workflow,
        "status": row.status.value,
        "remark": _remark(row) or None,
        "session": row.session,
        "worker": row.owner,
        "epoch": row.epoch,
        "generation": row.generation,
        "priority": row.priority,
        "queue": row.queue,
        "strikes": row.strikes,
        "created_at": _iso(row.created_at),
        "ready_at": _iso(row.ready_at),
        "deadline_at": _iso(row.deadline_at),
        "ended_at": _iso(row.ended_at),
    }


def entry_data(entry: Entry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "kind": entry.kind.value,
        "key": entry.key,
        "epoch": entry.epoch,
        "attempt": entry.attempt,
        "failed": entry.failed,
        "started_at": _iso(entry.started_at),
        "at": _iso(entry.at),
        "due_at": _iso(entry.due_at),
        "input": payload_data(entry.input),
        "output": payload_data(entry.output),
    }


def promise_data(promise: PromiseRow) -> dict[str, Any]:
    return {
        "name": promise.name,
        "kind": promise.kind,
        "key": promise.key,
        "type": payload_data(promise.type.encode()),
        "prompt": payload_data(promise.prompt),
        "resolved": promise.resolved,
        "created_at": _iso(promise.created_at),
    }


def worker_data(row: WorkerRow, health: str) -> dict[str, Any]:
    return {
        "id": row.id,
        "host": row.host,
        "pid": row.pid,
        "health": health,
        "started_at": _iso(row.started_at),
        "lease_seconds": row.lease_seconds,
        "lease_left_seconds": round(row.lease_left_seconds, 3),
        "note": row.note,
    }


def schedule_data(row: ScheduleRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "workflow": row.workflow,
        "cron": row.cron,
        "zone": row.zone,
        "catch_up": row.catch_up,
        "paused": row.paused,
        "next_at": None if row.paused else _iso(row.next_at),
        "last_at": _iso(row.last_at),
        "last_run": row.last_run,
        "input": payload_data(row.input),
    }


def queue_data(row: QueueRow, waits_for: str) -> dict[str, Any]:
    return {
        "name": row.name,
        "concurrency": row.concurrency,
        "per_worker": row.per_worker,
        "rate": None
        if row.rate_count is None or row.rate_micros is None
        else {
            "count": row.rate_count,
            "seconds": row.rate_micros / 1e6,
            "burst": row.rate_burst,
        },
        "paused": row.paused,
        "running": row.running,
        "ready": row.ready,
        "oldest": _iso(row.oldest),
        "waits_for": waits_for or None,
    }


def payload_data(data: bytes | None) -> Any:
    """The recorded JSON as it is: values of richer types carry the codec's tags."""
    return None if data is None else json.loads(data)


def _iso(at: Micros | None) -> str | None:
    return None if at is None else to_datetime(at).isoformat()
