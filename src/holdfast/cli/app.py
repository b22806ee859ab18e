"""The table of commands, and what becomes of their errors."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from holdfast.cli import control, crash_test, db, move, queues, runs, schedules, serve, sessions
from holdfast.cli.target import report
from holdfast.errors import HoldfastError

app = typer.Typer(
    name="holdfast",
    help="Durable runs: serve them, look at them, unblock them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"holdfast {version('holdfast')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Durable runs: serve them, look at them, unblock them."""


app.command("serve")(serve.serve)
app.command("worker")(serve.worker)
app.command("workers")(runs.workers)
app.command("runs")(runs.runs)
app.command("show")(runs.show)
app.command("why")(runs.why)
app.command("start")(control.start)
app.command("cancel")(control.cancel)
app.command("pause")(control.pause)
app.command("resume")(control.resume)
app.command("rerun")(control.rerun)
app.command("fork")(control.fork)
app.command("resolve")(control.resolve)
app.command("send")(control.send)
app.command("backup")(db.backup)
app.command("restore")(db.restore)
app.command("move")(move.move)
app.command("crash-test")(crash_test.crash_test)

_db = typer.Typer(help="Look after the store.", no_args_is_help=True, rich_markup_mode=None)
_db.command("upgrade")(db.upgrade)
_db.command("check")(db.check)
app.add_typer(_db, name="db")
app.add_typer(schedules.commands, name="schedules")
app.add_typer(queues.commands, name="queues")
app.add_typer(sessions.commands, name="sessions")


def main() -> None:
    """Exit codes: 0 done, 1 an error that Holdfast names, 2 a command that makes no sense."""
    for stream in (sys.stdout, sys.stderr):
        # What a terminal cannot show must not end the command.
        getattr(stream, "reconfigure", lambda errors: None)(errors="backslashreplace")
    try:
        app()
    except HoldfastError as error:
        report(error)
        sys.exit(1)
