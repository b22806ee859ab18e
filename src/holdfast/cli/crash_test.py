"""`holdfast crash-test`: what being killed costs an agent, without Holdfast and with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.target import AsJson


def crash_test(
    target: Annotated[
        str, typer.Argument(metavar="FILE[:NAME]", help="The agent's file, and its name in it.")
    ],
    input: Annotated[
        str | None,
        typer.Argument(metavar="INPUT", help="What the agent is given: a text, or JSON."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before tools run.")] = False,
    every: Annotated[int, typer.Option(min=1, help="Kill at every N-th step only.")] = 1,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long one life may take.")
    ] = 300.0,
    as_json: AsJson = False,
) -> None:
    """Kill an agent at every step, without Holdfast and with it, and count the damage."""
    from holdfast.testing.crash_test import CrashTest

    file, _, name = target.partition(":")
    if not yes:
        typer.confirm(
            "The agent's tools are executed for real, again and again; models are asked once. "
            "Go on?",
            abort=True,
            err=True,
        )
    test = CrashTest(Path(file), name or None, _given(input), seconds_max=timeout, every=every)
    report = test.run(_progress if sys.stderr.isatty() else lambda done, kills: None)
    if as_json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        _show(report)
    raise typer.Exit(0 if report.holds else 1)


def _given(text: str | None) -> Any:
    """JSON where it can be nothing else: a text needs no quotes."""
    if text is not None and text.lstrip()[:1] in ("{", "[", '"'):
        try:
            return json.loads(text)
        except ValueError as error:
            raise typer.BadParameter(f"INPUT begins like JSON, but is none: {error}") from None
    return text


def _progress(done: int, kills: int) -> None:
    end = "\n" if done == kills else ""
    print(f"\rkilled {done} of {kills} times", end=end, file=sys.stderr, flush=True)


def _show(report: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{report.agent}: {report.models} calls of models, {_effects(report)}")
    table.add_column("")
    table.add_column("without Holdfast", justify="right")
    table.add_column("with Holdfast", justify="right")
    sides = (report.without, report.durable)
    rows = {
        "killed": [f"{side.kills}" for side in sides],
        "finished": [
            f"{report.without.finished}, from the start again",
            f"{report.durable.finished}, from where it was",
        ],
        "calls of models repeated": [f"{side.models_repeated}" for side in sides],
        "effects repeated": [f"{side.effects_repeated}" for side in sides],
        "work lost": [_work(side) for side in sides],
        "in flight when killed, tried again": [f"{side.in_flight}" for side in sides],
    }
    for what, cells in rows.items():
        table.add_row(what, *cells)
    Console().print(table)
    if report.outside_steps:
        print(
            f"Not in steps, so executed again on every replay: {', '.join(report.outside_steps)}. "
            "What does something in the world belongs into a @holdfast.step."
        )
    if report.models_outside_steps:
        print(
            f"Of the calls of models {report.models_outside_steps} were not in steps. Agents and "
            "clients are made durable if the file has them at its top level: make them there, or "
            "call `durable` yourself."
        )


def _effects(report: Any) -> str:
    return f"effects: {', '.join(report.effects) or 'none seen'}"


def _work(side: Any) -> str:
    tokens = f", {side.tokens_lost:,} tokens" if side.tokens_lost else ""
    return f"{side.seconds_lost:.1f} s{tokens}"
