"""Commands about queues."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import render
from holdfast.cli.target import App, AsJson, Db, ask
from holdfast.client import Holdfast
from holdfast.client.queues import waits_for
from holdfast.clock import Micros
from holdfast.types import QueueRow

Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.")]

commands = typer.Typer(help="List queues, pause and resume them.", rich_markup_mode=None)


@commands.callback(invoke_without_command=True)
def queues(context: typer.Context, as_json: AsJson = False, db: Db = None, app: App = None) -> None:
    """List queues, with their limits and how busy they are; or change one."""
    if context.invoked_subcommand is not None:
        if as_json or db is not None or app is not None:
            raise typer.BadParameter(f"options go behind `{context.invoked_subcommand}`")
        return

    async def look(client: Holdfast) -> tuple[list[QueueRow], Micros]:
        return await client.queues(), client.clock.now()

    rows, now = ask(db, app, look)
    if as_json:
        render.print_json([render.queue_data(row, waits_for(row, now)) for row in rows])
    elif rows:
        render.print_queues([(row, waits_for(row, now)) for row in rows])
    else:
        print("no queues; declare some: Holdfast(..., queues=[...])")


@commands.command("pause")
def pause(name: Name, db: Db = None, app: App = None) -> None:
    """Let no run of a queue begin or go on, until it is resumed."""
    ask(db, app, lambda client: client.pause_queue(name))
    print(f"queue {name} is paused; runs in memory go on")


@commands.command("resume")
def resume(name: Name, db: Db = None, app: App = None) -> None:
    """Let the runs of a paused queue go on."""
    ask(db, app, lambda client: client.resume_queue(name))
    print(f"queue {name} is open")
