"""Moving a store elsewhere."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from holdfast import store
from holdfast.cli.target import AsJson
from holdfast.store.copying import Progress

Report = Callable[[Progress], None]

_STEPS = 10
"""So many lines are printed for a long table, where there is no bar to watch."""


def move(
    source: Annotated[str, typer.Argument(metavar="SOURCE_URL", help="The store to move.")],
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET_URL", help="Where to: an empty or missing store."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be moved.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Take a move back that is not done.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Move everything to another store. Interrupted, it goes on when it is repeated."""
    if dry_run and undo:
        raise typer.BadParameter("--dry-run and --undo exclude each other")
    if dry_run:
        _print_plan(asyncio.run(store.planned_move(source, target)), as_json)
        return
    with _progress(as_json) as report:
        if undo:
            asyncio.run(store.undo_move(source, target, report))
            said = "the move was taken back; the source is in use again"
        elif asyncio.run(store.move(source, target, report)):
            said = "moved; use the target from now on"
        else:
            said = "it was moved before; nothing was left to do"
    print(json.dumps({"done": said}) if as_json else said)


def _print_plan(plan: dict[str, int], as_json: bool) -> None:
    if as_json:
        print(json.dumps(plan))
        return
    for table, rows in plan.items():
        print(f"{table}: {rows} rows")


@contextmanager
def _progress(as_json: bool) -> Iterator[Report]:
    if as_json:
        yield lambda progress: print(json.dumps(progress._asdict()), flush=True)
    elif not sys.stdout.isatty():
        yield _plain_lines()
    else:
        with _bars() as report:
            yield report


def _plain_lines() -> Report:
    printed: dict[str, int] = {}

    def report(progress: Progress) -> None:
        what, done, total = progress
        if not total:
            if " " in what:  # a sentence; an empty table is no news
                print(what, flush=True)
            return
        step = done * _STEPS // total
        if printed.get(what) != step:
            printed[what] = step
            print(f"{what}: {done} of {total} rows", flush=True)

    return report


@contextmanager
def _bars() -> Iterator[Report]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    with Bars(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    ) as bars:
        shown: dict[str, object] = {}

        def report(progress: Progress) -> None:
            what, done, total = progress
            if not total:
                if " " in what:
                    bars.console.print(what)
                return
            if what not in shown:
                shown[what] = bars.add_task(what, total=total)
            bars.update(shown[what], completed=done)  # type: ignore[arg-type]

        yield report
