"""Commands about schedules."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import render
from holdfast.cli.target import App, AsJson, Db, ask

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]

commands = typer.Typer(help="List schedules, pause and trigger them.", rich_markup_mode=None)


@commands.callback(invoke_without_command=True)
def schedules(
    context: typer.Context, as_json: AsJson = False, db: Db = None, app: App = None
) -> None:
    """List schedules, with their next ticks and last runs; or change one."""
    if context.invoked_subcommand is not None:
        if as_json or db is not None or app is not None:
            raise typer.BadParameter(f"options go behind `{context.invoked_subcommand}`")
        return
    rows = ask(db, app, lambda client: client.schedules())
    if as_json:
        render.print_json([render.schedule_data(row) for row in rows])
    elif rows:
        render.print_schedules(rows)
    else:
        print("no schedules; declare some: Holdfast(..., schedules=[...])")


@commands.command("pause")
def pause(name: Name, db: Db = None, app: App = None) -> None:
    """Let a schedule tick no more, until it is resumed."""
    ask(db, app, lambda client: client.pause_schedule(name))
    print(f"schedule {name} is paused; its runs go on")


@commands.command("resume")
def resume(name: Name, db: Db = None, app: App = None) -> None:
    """Let a paused schedule tick again, from now on."""
    ask(db, app, lambda client: client.resume_schedule(name))
    print(f"schedule {name} ticks")


@commands.command("trigger")
def trigger(name: Name, db: Db = None, app: App = None) -> None:
    """Start a run of a schedule now, beside its ticks, and print its id."""
    print(ask(db, app, lambda client: client.trigger_schedule(name)).id)


@commands.command("delete")
def delete(name: Name, db: Db = None, app: App = None) -> None:
    """Forget a schedule; its runs stay. An app that declares it brings it back."""
    ask(db, app, lambda client: client.delete_schedule(name))
    print(f"schedule {name} is deleted; its runs stay")
