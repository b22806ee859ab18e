"""The closing tables: each kill with its take-over, and every count against what was needed."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.demo.director import Director, Kill
from examples.demo.ledger import Count, Ledger, median
from examples.demo.screen import big, worker


def show(console: Console, director: Director, ledger: Ledger) -> None:
    status = director.row.status if director.row else "unknown"
    head = f" {len(director.kills)} kills later: the run is {status} "
    console.print()
    console.print(Text(head, "bold reverse"), Text(f"{director.elapsed:.1f} s", "dim"))
    console.print(_kills(director.kills))
    console.print(_counts(ledger))
    middle = median(kill.claim_ms for kill in director.kills if not kill.from_start)
    if middle is not None:
        line = Table.grid(padding=(0, 1))
        said = Text(
            "\nms from SIGKILL to the claim by another worker,\nmedian of those with a peer alive"
        )
        line.add_row("", big(f"{middle:.0f}", "bold green"), said)
        console.print(line)
    console.print()
    for complaint in ledger.complaints():
        console.print(Text(f" ✖ {complaint}", "bold red"))
    if not ledger.complaints():
        text = " ✔ no finished step was repeated, none was lost, every effect happened once"
        console.print(Text(text, "bold green"))


def _kills(kills: list[Kill]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("SIGKILL", min_width=42)
    table.add_column("victim")
    table.add_column("taken over by")
    table.add_column("after", justify="right")
    table.add_column("call made again", justify="right")
    for kill in kills:
        after = f"{kill.claim_ms:.0f} ms" if kill.claim_ms is not None else "never"
        if kill.from_start:
            after = f"{after} *"
        again = f"{kill.again_ms:.0f} ms" if kill.again_ms is not None else ""
        table.add_row(kill.text, worker(kill.victim.name), worker(kill.by or ""), after, again)
    if any(kill.from_start for kill in kills):
        table.caption = "* nobody was alive: counted from the start of a new Python process"
        table.caption_justify = "left"
    return table


def _counts(ledger: Ledger) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("", min_width=16)
    headers = ("needed", "made", "in flight at a kill", "refused, retried", "repeated", "lost")
    for header in headers:
        table.add_column(header, justify="right")
    for name, count in (("LLM calls", ledger.llm), ("tool calls", ledger.tools)):
        table.add_row(name, *_cells(count))
    needed, made = ledger.effects_needed, ledger.effects_made
    more, fewer = max(0, made - needed), max(0, needed - made)
    table.add_row("effects", f"{needed}", f"{made}", "", "", _zero(more), _zero(fewer))
    lost = ledger.steps_needed - ledger.steps_done
    table.add_row(
        "steps, approval", f"{ledger.steps_needed}", f"{ledger.steps_done}", "", "", "", _zero(lost)
    )
    return table


def _cells(count: Count) -> tuple[str | Text, ...]:
    return (
        f"{count.needed}",
        f"{count.made}",
        f"{count.in_flight}",
        f"{count.refused}",
        _zero(count.repeated + max(0, count.unexplained)),
        _zero(count.lost),
    )


def _zero(value: int) -> Text:
    return Text(f"{value}", "bold green" if value == 0 else "bold red")
