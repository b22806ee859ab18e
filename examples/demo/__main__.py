"""`python -m examples.demo`: watch a run survive its workers.

--fast plays it without pauses; --plain prints lines instead of a live view (as it does without a
terminal of 96 × 29 or more); --sabotage makes the invoice a plain call instead of a step, which
sends it twice: the demo notices and exits with 1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
from pathlib import Path

if not __package__:  # called by its path, from wherever
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rich.console import Console

from examples.demo import closing
from examples.demo.director import Director
from examples.demo.screen import (
    HEIGHT_MIN,
    WIDTH_MAX,
    WIDTH_MIN,
    LiveScreen,
    PlainScreen,
    Screen,
)

FRAME_SECONDS = 0.08


def main() -> int:
    parser = argparse.ArgumentParser(prog="examples.demo", description=__doc__)
    parser.add_argument("--fast", action="store_true", help="without pauses")
    parser.add_argument("--plain", action="store_true", help="lines instead of a live view")
    parser.add_argument("--sabotage", action="store_true", help="break it, to see it noticed")
    given = parser.parse_args()
    if not hasattr(signal, "SIGKILL"):
        sys.exit("the demo kills its workers with SIGKILL, which this system does not have")
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))  # cleans up on the way
    console = Console()
    if not console.is_terminal:
        console = Console(width=100)
    elif console.width > WIDTH_MAX:
        console = Console(width=WIDTH_MAX)
    has_room = console.width >= WIDTH_MIN and console.height >= HEIGHT_MIN
    is_live = console.is_terminal and has_room and not given.plain
    screen: Screen = LiveScreen(console) if is_live else PlainScreen(console)
    pace = 0.1 if given.fast else 1.0
    try:
        return asyncio.run(play(console, screen, pace, sabotage=given.sabotage))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


async def play(console: Console, screen: Screen, pace: float, *, sabotage: bool) -> int:
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        director = Director(Path(folder), pace=pace, sabotage=sabotage, say=screen.say)
        try:
            with screen:
                painting = asyncio.create_task(paint(screen, director))
                ledger = await director.play()
                await asyncio.sleep(2 * pace)
                painting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await painting
        except TimeoutError:
            console.print(f"the run did not end in time\n{director.crew.last_words()}")
            return 1
        closing.show(console, director, ledger)
    return 1 if ledger.complaints() else 0


async def paint(screen: Screen, director: Director) -> None:
    while True:
        screen.show(director)
        await asyncio.sleep(FRAME_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
