"""Real processes for tests: start them, wait for what they do, end them by their own id.

Whatever waits has a deadline, and says what it waited for when that has passed. This is the only
place where tests look again and again: an outside observer has no other way to see a process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from holdfast import Holdfast
from holdfast import remote as holdfast_remote

T = TypeVar("T")

ROOT = Path(__file__).parent.parent.parent
SECONDS_MAX = 120.0
LOOK_SECONDS = 0.01


def eventually(look: Callable[[], T], what: str, seconds: float = SECONDS_MAX) -> T:
    """The first true value that `look` returns."""
    until = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"in {seconds:.0f} s this did not happen: {what}; last: {found!r}")
        time.sleep(LOOK_SECONDS)


def environment(**changes: str) -> dict[str, str]:
    """The environment for a child: this one's, without what would change Holdfast's behaviour."""
    kept = {k: v for k, v in os.environ.items() if k != "HOLDFAST_DB"}
    ours = {
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONUTF8": "1",
        "PYTHONHASHSEED": "0",  # without one a worker starts itself a second time
    }
    return {**kept, **ours, **changes}


def holdfast(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """One command, run to its end."""
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=SECONDS_MAX,
    )


class Process:
    """A process that goes on while the test does; what it says is kept in a file."""

    def __init__(self, command: list[str], cwd: Path, **env: str) -> None:
        self.said = cwd / f"said-{os.urandom(4).hex()}.txt"
        with self.said.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment(**env),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return self.said.read_text("utf-8", errors="replace")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = SECONDS_MAX) -> int:
        """The exit code; negative: the signal that ended it."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.pid} did not end; it said:\n{self.output}") from None

    def wait_for_text(self, text: str) -> None:
        eventually(lambda: text in self.output, f"process {self.pid} says {text!r}")

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


@contextmanager
def spawned(*arguments: str, cwd: Path, **env: str) -> Iterator[Process]:
    """`python -m holdfast ARGUMENTS` in the background; killed at the end if it still lives."""
    process = Process([sys.executable, "-m", "holdfast", *arguments], cwd, **env)
    try:
        yield process
    except BaseException:
        print(f"--- {' '.join(arguments)} said:\n{process.output}")
        raise
    finally:
        process.end()


def is_alive(pid: int) -> bool:
    """A process that has ended and only waits for its parent to notice does not live."""
    if os.path.isdir("/proc/self"):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace")
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] not in "ZX"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Observer:
    """A file outside of all stores, into which steps write a line for each effect.

    Lines are appended by single writes with O_APPEND, so a killed writer leaves whole lines.
    """

    # What users' modules in tests need to report to it.
    CODE = '''
import asyncio, os

def report(line, file="effects.txt"):
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, (line + "\\n").encode())
    os.close(fd)

async def held(name):
    """Says that it is here, and stays while there is a file of this name."""
    report(f"{name} {os.getpid()}", "arrivals.txt")
    while os.path.exists(name):
        await asyncio.sleep(0.01)
'''

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _lines(self, file: str) -> list[str]:
        try:
            return (self._folder / file).read_text("utf-8").splitlines()
        except FileNotFoundError:
            return []

    def effects(self) -> Counter[str]:
        return Counter(self._lines("effects.txt"))

    def arrivals(self, gate: str) -> list[int]:
        """The pids of those who came to this gate, in order."""
        found = [line.split() for line in self._lines("arrivals.txt")]
        return [int(pid) for name, pid in found if name == gate]

    def close_gate(self, name: str) -> None:
        (self._folder / name).touch()

    def open_gate(self, name: str) -> None:
        (self._folder / name).unlink()

    def await_arrival(self, gate: str, *, count: int = 1) -> int:
        """The pid of the last who came."""
        what = f"arrival {count} at the gate {gate!r}"
        eventually(lambda: len(self.arrivals(gate)) >= count, what)
        return self.arrivals(gate)[-1]


@contextmanager
def seen(where: Path | str) -> Iterator[SeenStore]:
    """The store in this file or at this url, as an outsider sees it, while others use it."""
    url = where if isinstance(where, str) else f"sqlite:///{where}"
    with Holdfast(url, worker=False).sync() as door:
        yield SeenStore(door)


class SeenStore:
    def __init__(self, door) -> None:
        self._door = door

    def start(self, workflow: str, name: str) -> None:
        """Starts a run, whose id and only argument is this name, of a workflow served elsewhere."""

        async def stub(name: str) -> None: ...

        self._door.with_options(id=name).start(holdfast_remote(workflow)(stub), name)

    def status(self, run: str) -> str:
        return self._door.row(run).status.value

    def owner_pid(self, run: str) -> int | None:
        owner = self._door.row(run).owner
        return next((row.pid for row in self._door.workers() if row.id == owner), None)

    def worker_pids(self) -> set[int]:
        """Of the registered workers that live."""
        return {row.pid for row in self._door.workers() if is_alive(row.pid)}

    def registered(self) -> set[int]:
        return {row.pid for row in self._door.workers()}

    def await_workers(self, count: int, *, without: Iterable[int] = ()) -> set[int]:
        """The pids, once this many workers live and are registered besides those in `without`."""

        def look() -> set[int]:
            pids = self.worker_pids() - set(without)
            return pids if len(pids) == count else set()

        return eventually(look, f"{count} workers are registered besides {sorted(without)}")

    def await_status(self, run: str, status: str) -> None:
        eventually(lambda: self.status(run) == status, f"run {run} is {status}")

    def journal(self, run: str) -> list:
        return self._door.history(run)

    def claims(self, run: str) -> int:
        return sum(entry.kind.value == "claim" for entry in self.journal(run))

    def row(self, run: str):
        return self._door.row(run)
