"""Commands about sessions."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.target import App, Db, ask

Name = Annotated[str, typer.Argument(metavar="NAME", help="The session's name.")]

commands = typer.Typer(
    help="Delete what sessions hold.", no_args_is_help=True, rich_markup_mode=None
)


@commands.callback()
def sessions() -> None:
    """Delete what sessions hold."""


@commands.command("delete")
def delete(name: Name, db: Db = None, app: App = None) -> None:
    """Delete a session's state and messages, if none of its runs is under way or waits."""
    if ask(db, app, lambda client: client.delete_session(name)):
        print(f"session {name} is deleted; its ended runs stay")
    else:
        print(f"session {name} holds nothing")
