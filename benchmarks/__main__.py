"""`python -m benchmarks [NAMES] [--quick] [--json] [--loop asyncio|uvloop|both] [--dir DIR]`."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks import postgres, postgres_sleepers
from benchmarks.conversation import conversation
from benchmarks.figures import Figure, table
from benchmarks.imports import imports
from benchmarks.replay import replay
from benchmarks.setting import Setting, loop_factory
from benchmarks.sleepers import sleepers
from benchmarks.takeover import takeover
from benchmarks.throughput import parallel, sequential
from holdfast.errors import ReplayWarning

BENCHMARKS: dict[str, Callable[[Setting], Awaitable[None]]] = {
    "sequential": sequential,
    "parallel": parallel,
    "takeover": takeover,
    "import": imports,
    "replay": replay,
    "conversation": conversation,
    "sleepers": sleepers,
    "postgres-sequential": postgres.sequential,
    "postgres-parallel": postgres.parallel,
    "postgres-kills": postgres.kills,
    "postgres-grown": postgres.grown,
    "postgres-sleepers": postgres_sleepers.sleepers,
}
BY_LOOP = {"sequential", "parallel", "replay", "postgres-sequential", "postgres-parallel"}
"""Those for which the kind of event loop matters."""


def main() -> int:
    options = _options()
    if options.one:
        return _run_one(options)
    figures: list[Figure] = []
    failed = False
    for name in options.names or list(BENCHMARKS):
        for loop in ("asyncio", "uvloop") if options.loop == "both" else (options.loop,):
            if loop == "uvloop" and name not in BY_LOOP:
                continue
            print(f"{name} ({loop}) ...", file=sys.stderr, flush=True)
            found = _in_own_process(name, loop, options)
            failed = failed or found is None
            figures += found or []
    if options.json:
        print(json.dumps([dataclasses.asdict(figure) for figure in figures], indent=1))
    else:
        print(table(figures))
        # How it was built makes a difference: with profile-guided optimization or without.
        print(f"by {sys.executable}: Python {sys.version}")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS], metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="smaller, for a first impression")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--loop", choices=["asyncio", "uvloop", "both"], default="asyncio")
    parser.add_argument(
        "--dir", type=Path, default=Path("build/bench"), help="where files are made"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_own_process(name: str, loop: str, options: argparse.Namespace) -> list[Figure] | None:
    """Memory and processor time of one benchmark must not show in another's figures."""
    command = [sys.executable, "-m", "benchmarks", name, "--one", "--loop", loop]
    command += ["--dir", str(options.dir), *(["--quick"] if options.quick else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"{name} ({loop}) failed", file=sys.stderr)
        return None
    return [Figure(**figure) for figure in json.loads(done.stdout)]


def _run_one(options: argparse.Namespace) -> int:
    logging.getLogger("holdfast").addHandler(logging.NullHandler())
    warnings.simplefilter("ignore", ReplayWarning)  # the workflows read clocks to measure
    (name,) = options.names
    setting = Setting(
        bench=name, folder=options.dir.resolve(), quick=options.quick, loop=options.loop
    )
    with asyncio.Runner(loop_factory=loop_factory(options.loop)) as runner:
        runner.run(_call(BENCHMARKS[name], setting))
    print(json.dumps([dataclasses.asdict(figure) for figure in setting.figures]))
    return 0


async def _call(benchmark: Callable[[Setting], Awaitable[None]], setting: Setting) -> None:
    await benchmark(setting)


if __name__ == "__main__":
    sys.exit(main())
