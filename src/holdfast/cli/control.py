"""Commands that start runs and change what becomes of them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any

import typer

from holdfast import Decision
from holdfast.cli.target import App, Db, RunId, Target, ask, asking, load_app, parse, require_shared
from holdfast.client import Holdfast
from holdfast.client.answers import open_names
from holdfast.errors import UnknownWorkflow
from holdfast.types import PromiseRow


def start(
    target: Target,
    workflow: Annotated[str, typer.Argument(help="The workflow's name.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[JSON]...", help="Its arguments, each as JSON.")
    ] = None,
    kwargs: Annotated[
        str | None, typer.Option(metavar="JSON", help="Its keyword arguments, as a JSON object.")
    ] = None,
    id: Annotated[
        str | None, typer.Option(help="The run's id; the same id is the same run.")
    ] = None,
    session: Annotated[str | None, typer.Option(help="The session it belongs to.")] = None,
    delay: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Begin after this time.")
    ] = None,
) -> None:
    """Start a run, and print its id. A worker executes it."""
    client = load_app(target)
    require_shared(client.url)
    found = client.workflows.get(workflow)
    if found is None:
        known = ", ".join(sorted(client.workflows)) or "none"
        raise UnknownWorkflow(f"{target} lists no workflow {workflow!r}; it lists: {known}")
    positional = [parse(text, "an argument") for text in arguments or ()]
    named = parse(kwargs, "--kwargs") if kwargs is not None else {}
    if not isinstance(named, dict):
        raise typer.BadParameter("--kwargs must be a JSON object")
    options: dict[str, Any] = {"id": id, "session": session}
    if delay is not None:
        options["delay"] = timedelta(seconds=delay)

    async def begin(app: Holdfast) -> str:
        run = await app.with_options(**options).start(found, *positional, **named)
        return run.id

    print(asyncio.run(asking(client, begin)))


def cancel(id: RunId, db: Db = None, app: App = None) -> None:
    """Ask a run to stop; it may clean up first."""
    ask(db, app, lambda client: client.cancel(id))
    print(f"run {id} is asked to stop")


def pause(id: RunId, db: Db = None, app: App = None) -> None:
    """Stop a run at its next step, until it is resumed."""
    ask(db, app, lambda client: client.pause(id))
    print(f"run {id} stops before its next step")


def resume(id: RunId, db: Db = None, app: App = None) -> None:
    """Let a paused, parked or quarantined run go on."""
    ask(db, app, lambda client: client.resume(id))
    print(f"run {id} may go on")


def rerun(id: RunId, db: Db = None, app: App = None) -> None:
    """Let a failed or cancelled run go on from the step that failed."""
    ask(db, app, lambda client: client.rerun(id))
    print(f"run {id} goes on from where it failed")


def fork(
    id: RunId,
    before: Annotated[str, typer.Option(metavar="KEY", help="The first step to do anew.")],
    new_id: Annotated[str | None, typer.Option("--id", help="The new run's id.")] = None,
    db: Db = None,
    app: App = None,
) -> None:
    """Start a new run with what another did before a step, and print its id."""
    forked = ask(db, app, lambda client: client.fork(id, before=before, id=new_id))
    print(forked.id)


def resolve(
    id: RunId,
    name: Annotated[str, typer.Argument(help="The promise's name.")],
    value: Annotated[str | None, typer.Argument(metavar="[JSON]", help="The answer.")] = None,
    approve: Annotated[
        bool | None, typer.Option("--approve/--decline", help="The answer to an approval.")
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="WHO", help="Who decided.")] = None,
    comment: Annotated[str | None, typer.Option(metavar="TEXT", help="Why.")] = None,
    early: Annotated[
        bool, typer.Option("--early", help="Also if the run has not opened the promise yet.")
    ] = False,
    db: Db = None,
    app: App = None,
) -> None:
    """Answer a promise or an approval. The first answer stands."""
    if (value is None) == (approve is None):
        raise typer.BadParameter("give the answer as JSON, or one of --approve and --decline")
    if approve is None and (by is not None or comment is not None):
        raise typer.BadParameter("--by and --comment go with --approve or --decline")
    if approve is not None:
        answer: object = Decision(approved=approve, by=by, comment=comment)
    else:
        answer = parse(value or "", "the answer")

    async def answer_it(client: Holdfast) -> list[PromiseRow]:
        await client.resolve(id, name, answer, early=early)
        return await client.promises(id)

    promises = ask(db, app, answer_it)
    if any(promise.name == name for promise in promises):
        print(f"{name} of run {id} is answered")
        return
    waits_for = f"; open are: {names}" if (names := open_names(promises)) else ""
    print(f"the answer to {name} is stored: run {id} has not asked for it yet{waits_for}")


def send(
    id: RunId,
    message: Annotated[str, typer.Argument(metavar="JSON", help="The message.")],
    channel: Annotated[str, typer.Option(help="The channel the run receives it on.")] = "",
    db: Db = None,
    app: App = None,
) -> None:
    """Send a message to a run."""
    sent = parse(message, "the message")
    ask(db, app, lambda client: client.send(id, sent, channel=channel))
    print(f"the message to run {id} is in its inbox")
