"""How an execution begins: with the claim that made it ours, and a word to whoever watches."""

from __future__ import annotations

import logging
import sys

from holdfast.engine.execution import Execution
from holdfast.types import Entry, Kind, RunRow

log = logging.getLogger("holdfast")


def first_entry(row: RunRow) -> Entry:
    """The claim of a fresh run, which need not be read back."""
    return Entry(1, Kind.CLAIM, row.owner or "", row.updated_at, row.epoch)


def say_resumed(run: Execution) -> None:
    done = run.replayed_steps
    text = f"resumed {run.row.id} at step {done + 1} ({done} replayed)"
    if log.hasHandlers():
        log.info(text)
    else:
        print(text, file=sys.stderr, flush=True)
