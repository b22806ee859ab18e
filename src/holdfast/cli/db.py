"""Commands that look after a store."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from holdfast import store
from holdfast.cli.target import App, Db, ask, choose_url, require_shared
from holdfast.errors import StoreCorrupt


def upgrade(
    sql: Annotated[
        bool, typer.Option("--sql", help="Only print the SQL, to be applied by hand.")
    ] = False,
    db: Db = None,
    app: App = None,
) -> None:
    """Bring the store's schema up to date; a missing store is created."""
    url = choose_url(db, app)
    require_shared(url)
    script = asyncio.run(store.upgrade_script(url))
    if sql:
        print(script or "-- the schema is up to date", end="" if script else "\n")
        return

    asyncio.run(store.upgrade(url))
    print(f"{url} was upgraded" if script else f"{url} is up to date")


def check(db: Db = None, app: App = None) -> None:
    """Look for damage in the store."""
    found = ask(db, app, lambda client: client.store.check())
    url = choose_url(db, app)
    if found:
        raise StoreCorrupt(
            f"{url} is damaged ({'; '.join(found)}); stop its workers, keep a copy, and "
            "`holdfast restore` the last backup"
        )
    print(f"{url} is sound")


def backup(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The file to write.")],
    db: Db = None,
    app: App = None,
) -> None:
    """Write a verified copy of the store while others go on using it."""
    ask(db, app, lambda client: client.store.backup(target))
    print(f"{choose_url(db, app)} was copied to {target}")


def restore(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A file that backup wrote.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace a store that holds data.")
    ] = False,
    db: Db = None,
    app: App = None,
) -> None:
    """Put a backup in the place of the store. Nobody may have the store open."""
    url = choose_url(db, app)
    require_shared(url)
    asyncio.run(store.restore(url, source, force=force))
    print(f"{url} was restored from {source}")
