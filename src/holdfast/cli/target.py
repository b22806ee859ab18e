"""What a command is about: the user's app, or only the store that it names.

An explicit --db comes before --app, that before HOLDFAST_DB in the environment, and last comes
holdfast.db in the current directory. Nothing here creates a store that is missing.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

import typer

from holdfast import codec, store
from holdfast.client import Holdfast
from holdfast.errors import HoldfastError, StoreUnavailable, Unsupported

T = TypeVar("T")

DEFAULT_URL = "sqlite:///holdfast.db"
ENVIRONMENT = "HOLDFAST_DB"

Target = Annotated[str, typer.Argument(metavar="MODULE:APP", help="The app, as in agent:app.")]
RunId = Annotated[str, typer.Argument(metavar="ID", help="The run's id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="URL",
        help=f"The store, as in sqlite:///agents.db; else ${ENVIRONMENT}, else {DEFAULT_URL}.",
    ),
]
App = Annotated[
    str | None, typer.Option("--app", metavar="MODULE:APP", help="The app whose store it is.")
]


class NotLoadable(HoldfastError):
    """The app cannot be loaded."""


def load_app(target: str) -> Holdfast:
    """The app that `module:name` means; the current directory is on the path."""
    module_name, colon, name = target.partition(":")
    if not module_name or not colon or not name:
        raise NotLoadable(f"{target!r} is not of the form module:app, as in agent:app")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise NotLoadable(f"{module_name!r} needs a module that is missing: {error}") from error
        raise NotLoadable(
            f"there is no module {module_name!r}; it was looked for in {here} and on PYTHONPATH"
        ) from None
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise NotLoadable(f"importing {module_name!r} failed with {what}") from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise NotLoadable(_no_such_name(found, module_name, name)) from None
    if not isinstance(found, Holdfast):
        raise NotLoadable(f"{target} is a {type(found).__name__}, not a holdfast.Holdfast")
    return found


def _no_such_name(found: Any, module: str, name: str) -> str:
    apps = [key for key, value in vars(found).items() if isinstance(value, Holdfast)]
    known = f"it has {', '.join(apps)}" if apps else "no app is defined there"
    return f"module {module!r} has no {name!r}; {known}"


def choose_url(db: str | None, app: str | None) -> str:
    if db is not None:
        return db
    if app is not None:
        return load_app(app).url
    return os.environ.get(ENVIRONMENT) or DEFAULT_URL


def choose(db: str | None, app: str | None) -> Holdfast:
    """A mere client of the store that the options name. It must be there."""
    url = choose_url(db, app)
    require_shared(url)
    if not store.exists(url):
        raise StoreUnavailable(
            f"there is no store {url}; give --db URL or --app MODULE:APP, or set {ENVIRONMENT}"
        )
    workflows = load_app(app).workflows.values() if app is not None else ()
    return Holdfast(url, workflows=workflows, worker=False)


def require_shared(url: str) -> None:
    if not store.is_shared(url):
        raise Unsupported(f"{url} lives inside one process, where no other can see it; use a file")


def ask(db: str | None, app: str | None, what: Callable[[Holdfast], Coroutine[Any, Any, T]]) -> T:
    """Opens the store, asks, closes it."""
    return asyncio.run(asking(choose(db, app), what))


async def asking(client: Holdfast, what: Callable[[Holdfast], Coroutine[Any, Any, T]]) -> T:
    await client.open(worker=False)
    try:
        return await what(client)
    finally:
        await client.close()


def parse(text: str, what: str) -> Any:
    """A value given as JSON; what the codec tags (dates, registered classes) is understood too."""
    try:
        json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{what} must be JSON, and {text!r} is not ({error}); a text needs its quotes: "
            f"'{json.dumps(text)}'"
        ) from None
    return codec.decode(text.encode(), what=what)


def report(error: HoldfastError) -> None:
    """One line that says what is wrong and what helps; users' own errors with their traceback."""
    if isinstance(error, NotLoadable) and error.__cause__ is not None:
        traceback.print_exception(error.__cause__)
    print(f"holdfast: {error}", file=sys.stderr)
