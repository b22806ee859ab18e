"""The live view (rich): steps on the left; workers, the last take-over and events on the right.

Without a terminal the same events come as plain lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.demo import view
from examples.demo.director import Director, Event
from examples.demo.ledger import median

WIDTH_MIN, WIDTH_MAX, HEIGHT_MIN = 96, 110, 29
EVENTS_SHOWN = 40
WORKER_STYLES = ("cyan", "magenta", "yellow", "green", "blue", "bright_red")
STATES = {
    "": ("·", "dim"),
    "running": ("● running", "bold yellow"),
    "done": ("✔ done", "green"),
    "killed": ("✖ killed", "bold red"),
    "backing off": ("↻ backs off", "yellow"),
    "waiting": ("? waiting", "bold yellow"),
    "answered": ("✓ answered", "yellow"),
}
SIGNS = {
    view.ANSWERED: "green",
    view.REFUSED: "yellow",
    view.KILLED: "bold red",
    view.IN_FLIGHT: "bold yellow",
}
DIGITS = {
    "0": ("█▀█", "█ █", "▀▀▀"),
    "1": (" ▀█", "  █", "  ▀"),
    "2": ("▀▀█", "█▀▀", "▀▀▀"),
    "3": ("▀▀█", " ▀█", "▀▀▀"),
    "4": ("█ █", "▀▀█", "  ▀"),
    "5": ("█▀▀", "▀▀█", "▀▀▀"),
    "6": ("█▀▀", "█▀█", "▀▀▀"),
    "7": ("▀▀█", "  █", "  ▀"),
    "8": ("█▀█", "█▀█", "▀▀▀"),
    "9": ("█▀█", "▀▀█", "▀▀▀"),
}


class Screen(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    def say(self, event: Event) -> None: ...
    def show(self, director: Director) -> None: ...


class PlainScreen:
    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def say(self, event: Event) -> None:
        line = f"{event.at:6.2f} s  {event.mark} {event.text}"
        self._console.print(line, style=event.style, markup=False, highlight=False, soft_wrap=True)

    def show(self, director: Director) -> None: ...


class LiveScreen:
    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def say(self, event: Event) -> None: ...

    def show(self, director: Director) -> None:
        self._live.update(whole(director), refresh=True)


def whole(director: Director) -> RenderableType:
    right = Layout()
    right.split_column(
        Layout(_workers(director), size=4),
        Layout(_last_takeover(director), size=8),
        Layout(_events(director)),
    )
    body = Layout()
    body.split_row(Layout(_steps(director), size=56), right)
    page = Layout()
    page.split_column(Layout(_title(director), size=2), body, Layout(_counts(director), size=1))
    return page


def big(text: str, style: str) -> Text:
    """Digits three lines high."""
    lines = [" ".join(DIGITS[digit][line] for digit in text) for line in range(3)]
    return Text("\n".join(lines), style=style)


def worker(name: str) -> Text:
    if not name.startswith("w"):
        return Text(name)
    return Text(name, style=WORKER_STYLES[(int(name[1:]) - 1) % len(WORKER_STYLES)])


def _title(director: Director) -> RenderableType:
    line = Table.grid(expand=True)
    line.add_column()
    line.add_column(justify="right")
    title = Text.assemble(
        (" holdfast ", "bold reverse"), "  one agent run, two worker processes, one SQLite file"
    )
    line.add_row(title, Text(f"{director.elapsed:4.1f} s ", style="bold"))
    return line


def _steps(director: Director) -> RenderableType:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("step", min_width=25)
    table.add_column("")
    table.add_column("state", min_width=11)
    table.add_column("by", min_width=2)
    table.add_column("tries", min_width=4)
    for step in view.steps(director):
        row = step.row
        label, style = STATES[step.state]
        if step.note:
            label = f"↻ in {step.note}"
        tries = Text.assemble(*((sign, SIGNS[sign]) for sign in step.tries))
        kind = {"llm": "llm", "tool": "tool"}.get(row.service, "")
        bold = "bold" if step.state not in ("", "done") else ""
        table.add_row(
            Text(row.title, style=bold or ("dim" if not step.state else "")),
            Text(kind, style="dim"),
            Text(label, style=style),
            worker(step.worker),
            tries,
        )
    legend = Text.assemble(
        "\n", ("✔", "green"), " answered  ", ("✖", "bold red"), " its worker was killed  ",
        ("↻", "yellow"), " refused", style="dim",
    )  # fmt: skip
    return Panel(Group(table, legend), title="steps", border_style="dim", padding=(0, 1))


def _workers(director: Director) -> RenderableType:
    lines = Text()
    owner = view.claimant(director)
    alive = director.crew.alive
    for member in alive:
        duty = "executes the run" if member.name == owner else "stands by"
        if not member.ready:
            duty = "starting"
        lines.append_text(
            Text.assemble("● ", worker(member.name), f"  pid {member.pid}  ", (duty, "dim"), "\n")
        )
    if not alive:
        lines.append("✖ nobody is alive", style="bold red")
    killed = len(director.kills)
    title = f"workers · {killed} killed" if killed else "workers"
    return Panel(lines, title=title, border_style="dim", padding=(0, 1))


def _last_takeover(director: Director) -> RenderableType:
    known = [kill for kill in director.kills if kill.claim_ms is not None and not kill.from_start]
    pending = [kill for kill in director.kills if kill.claim_ms is None]
    if pending:
        victims = " and ".join(kill.victim.name for kill in pending)
        body: RenderableType = Group(Text(f"✖ SIGKILL {victims}", "bold red"), pending[0].text)
        return Panel(body, title="take-over", border_style="red", padding=(0, 1))
    if not known:
        return Panel(Text("nobody died yet", "dim"), title="take-over", border_style="dim")
    last = known[-1]
    number = Table.grid(padding=(0, 1))
    said = Text.assemble("\nms from SIGKILL of ", worker(last.victim.name), "\nto the claim by ")
    said.append_text(worker(last.by or ""))
    number.add_row(big(f"{last.claim_ms:.0f}", "bold green"), said)
    all_ms = " · ".join(f"{kill.claim_ms:.0f}" for kill in known)
    again = f"its call was made again at {last.again_ms:.0f} ms" if last.again_ms else ""
    middle = median(kill.claim_ms for kill in known)
    facts = Text.assemble(f"{again}\n", (f"so far {all_ms} ms, median {middle:.0f} ms", "dim"))
    return Panel(Group(number, "", facts), title="take-over", border_style="green", padding=(0, 1))


def _events(director: Director) -> RenderableType:
    """The newest first: whatever does not fit falls off the end."""
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="dim")
    table.add_column()
    table.add_column()
    shown: Sequence[Event] = director.events[-EVENTS_SHOWN:]
    for event in reversed(shown):
        table.add_row(
            f"{event.at:.1f}", Text(event.mark, event.style), Text(event.text, event.style)
        )
    return Panel(table, title="events, newest first", border_style="dim", padding=(0, 1))


def _counts(director: Director) -> RenderableType:
    calls = director.calls
    llm = sum(call.service == "llm" for call in calls)
    return Text.assemble(
        " LLM calls ", (f"{llm}", "bold"), "   tool calls ", (f"{len(calls) - llm}", "bold"),
        "   effects ", (f"{len(director.office.effects)}", "bold"),
        "   steps journaled ", (f"{len(director.done)}", "bold"),
        "   kills ", (f"{len(director.kills)}", "bold red"),
    )  # fmt: skip
