"""Sees to it that no PostgreSQL server outlives the process that started it.

Run as a program, it waits until its parent is gone or says so, then cuts the power of the server
on the given data directory and removes the folder around it. It uses the standard library alone,
so that it starts in milliseconds. What it does not survive: being killed itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

LOOK_SECONDS = 0.005
PARENT_SECONDS = 0.5
SECONDS_MAX = 30.0


class Process(NamedTuple):
    parent: int
    state: str  # its first letter is T if stopped, Z if dead and not yet buried
    command: str


def processes() -> dict[int, Process]:
    """Every process we may see, by its id."""
    if not sys.platform.startswith("linux"):
        listing = ["ps", "-Aww", "-o", "pid=,ppid=,state=,command="]
        lines = subprocess.run(listing, capture_output=True, check=True, text=True).stdout
        fields = (line.split(None, 3) for line in lines.splitlines())
        return {int(f[0]): Process(int(f[1]), f[2], f[3]) for f in fields if len(f) == 4}
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                state, parent = (
                    Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:2]
                )
                command = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ")
                found[int(entry)] = Process(int(parent), state, command.decode(errors="replace"))
    return found


def cut_power(data: Path) -> None:
    """Kills the server on this directory with all its processes, and returns when they are gone.

    The postmaster is stopped first, so that it neither starts others nor hears of any death.
    """
    if sys.platform == "win32":
        raise OSError("needs Unix signals")
    killed: set[int] = set()
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        seen = {pid: p for pid, p in processes().items() if not p.state.startswith("Z")}
        masters = [pid for pid, p in seen.items() if p.command.rstrip().endswith(f" -D {data}")]
        servants = [pid for pid, p in seen.items() if p.parent in masters]
        if not masters and not killed & seen.keys():
            return
        ready = not servants and all(seen[pid].state.startswith("T") for pid in masters)
        for pid in servants:
            _send(pid, signal.SIGKILL)
        for pid in masters:
            _send(pid, signal.SIGKILL if ready else signal.SIGSTOP)
        killed.update(masters, servants)
        time.sleep(LOOK_SECONDS)
    raise TimeoutError(f"the processes of the server on {data} did not die of SIGKILL")


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def free_memory(data: Path) -> None:
    """Frees the shared memory segment of a server that was killed: nobody else would, ever."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
        segment = int(lines[6].split()[1])
    except (OSError, IndexError, ValueError):
        return  # it ended in order
    ctypes.CDLL(None).shmctl(segment, 0, None)


def _await_end() -> None:
    """Ends with the parent, even if a fork of it keeps our pipe open."""
    parent = os.getppid()
    while os.getppid() == parent:
        if select.select([sys.stdin], [], [], PARENT_SECONDS)[0]:
            return


def main(folder: Path) -> None:
    _await_end()
    try:
        cut_power(folder / "data")
        free_memory(folder / "data")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
