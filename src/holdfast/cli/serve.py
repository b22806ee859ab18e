"""Processes that execute runs."""

from __future__ import annotations

import asyncio
import logging
import sys
from datetime import timedelta
from typing import Annotated

import typer

from holdfast.cli.target import Target, load_app, report, require_shared
from holdfast.errors import HoldfastError
from holdfast.worker import process
from holdfast.worker.process import ProcessOptions
from holdfast.worker.supervisor import NOT_STARTED, SUPERVISOR_OPTION, Supervisor

Grace = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="How long running steps may go on after SIGTERM."),
]
Uvloop = Annotated[bool, typer.Option("--uvloop", help="Run on uvloop.")]


def serve(
    target: Target,
    workers: Annotated[int, typer.Option(min=1, max=1024, help="How many processes.")] = 1,
    grace: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="How long steps may go on after SIGTERM."),
    ] = 10.0,
    uvloop: Uvloop = False,
) -> None:
    """Run worker processes, and replace those that die."""
    _log_to_stderr()
    arguments = [target, "--grace", str(grace), *(["--uvloop"] if uvloop else [])]

    async def supervise() -> int:
        supervisor = Supervisor(arguments, workers=workers, grace=timedelta(seconds=grace))
        return await supervisor.run()

    raise typer.Exit(asyncio.run(supervise()))


def worker(
    target: Target,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Leave when there is nothing to do.")
    ] = False,
    wait_timers: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="With --until-idle: stay for what is due within this."
        ),
    ] = 0.0,
    grace: Grace = None,
    uvloop: Uvloop = False,
    supervisor_fd: Annotated[int | None, typer.Option(SUPERVISOR_OPTION, hidden=True)] = None,
) -> None:
    """Run one worker process."""
    options = ProcessOptions(
        grace=None if grace is None else timedelta(seconds=grace),
        until_idle=until_idle,
        wait_timers=timedelta(seconds=wait_timers),
        supervisor=supervisor_fd,
        uvloop=uvloop,
    )
    try:
        app = load_app(target)
        require_shared(app.url)
        _log_to_stderr()  # after the import, which may have set up logging of its own
        process.serve(app, options)
    except HoldfastError as error:
        if supervisor_fd is None:
            raise
        report(error)
        raise typer.Exit(NOT_STARTED) from None


def _log_to_stderr() -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(process)d %(levelname)s %(message)s",
    )
