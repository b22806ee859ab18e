"""Figures, and the table that shows them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    bench: str
    what: str
    value: float
    unit: str
    target: str = ""  # as the project states it
    loop: str = "asyncio"


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def middle(values: Iterable[float]) -> float:
    return statistics.median(values)


def table(figures: Sequence[Figure]) -> str:
    """One line per figure, in columns."""
    rows = [("benchmark", "loop", "what", "measured", "unit", "target")]
    rows += [(f.bench, f.loop, f.what, _number(f.value), f.unit, f.target) for f in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = []
    before = ""
    for index, row in enumerate(rows):
        name = row[0] if row[0] != before else ""
        before = row[0]
        cells = [name.ljust(widths[0]), row[1].ljust(widths[1]), row[2].ljust(widths[2])]
        cells += [row[3].rjust(widths[3]), row[4].ljust(widths[4]), row[5]]
        lines.append("  ".join(cells).rstrip())
        if index == 0:
            lines.append("  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"
