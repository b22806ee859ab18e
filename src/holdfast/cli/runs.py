"""Commands that look at runs and workers, and change nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import render
from holdfast.cli.target import App, AsJson, Db, RunId, ask
from holdfast.client import Holdfast
from holdfast.types import Entry, PromiseRow, RunFilter, RunRow, Status, WorkerRow


def runs(
    status: Annotated[
        list[Status] | None, typer.Option(help="Only these; may be given several times.")
    ] = None,
    workflow: Annotated[str | None, typer.Option(help="Only of this workflow.")] = None,
    session: Annotated[str | None, typer.Option(help="Only of this session.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 50,
    as_json: AsJson = False,
    db: Db = None,
    app: App = None,
) -> None:
    """List runs, the newest first."""
    which = RunFilter(
        status=frozenset(status or ()), workflow=workflow, session=session, limit=limit
    )
    rows = ask(db, app, lambda client: client.list(which))
    if as_json:
        render.print_json([render.run_data(row) for row in rows])
    elif rows:
        render.print_runs(rows)
    else:
        print("no runs")


def show(
    id: RunId,
    limit: Annotated[
        int, typer.Option(min=0, help="Show only so many of the last entries; 0: all.")
    ] = 200,
    as_json: AsJson = False,
    db: Db = None,
    app: App = None,
) -> None:
    """Show a run and its journal."""

    async def look(client: Holdfast) -> tuple[RunRow, list[Entry], list[PromiseRow]]:
        row = await client.row(id)
        return row, await client.history(id), await client.promises(id)

    row, entries, promises = ask(db, app, look)
    if as_json:
        data = render.run_data(row)
        data["input"] = render.payload_data(row.input)
        data["output"] = render.payload_data(row.output)
        data["journal"] = [render.entry_data(entry) for entry in entries]
        data["promises"] = [render.promise_data(promise) for promise in promises]
        render.print_json(data)
    else:
        hidden = max(0, len(entries) - limit) if limit else 0
        render.print_run(row, entries[hidden:], promises, hidden)


def why(id: RunId, db: Db = None, app: App = None) -> None:
    """Say in plain words where a run stands, and what would unblock it."""
    print(render.clean(ask(db, app, lambda client: client.why(id))))


def workers(as_json: AsJson = False, db: Db = None, app: App = None) -> None:
    """List the workers."""

    async def look(client: Holdfast) -> list[tuple[WorkerRow, str]]:
        return [(row, await _health(client, row)) for row in await client.workers()]

    found = ask(db, app, look)
    if as_json:
        render.print_json([render.worker_data(*one) for one in found])
    elif found:
        render.print_workers(found)
    else:
        print("no workers; start one: holdfast worker MODULE:APP")


async def _health(client: Holdfast, row: WorkerRow) -> str:
    if await client.store.is_dead(row):
        return "dead"
    return "alive" if row.lease_left_seconds > 0 else "silent"
