"""Sees to it that nothing of a Patroni cluster outlives the process that started it.

Run as a program, it waits until its parent is gone or says so, kills every process whose command
names the given folder, with their children, and removes the folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path

from holdfast.testing import postgres_guard


def end(folder: Path) -> None:
    killed: set[int] = set()
    while True:
        seen = postgres_guard.processes()
        living = {pid: p for pid, p in seen.items() if not p.state.startswith("Z")}
        found = {pid for pid, p in living.items() if str(folder) in p.command} - {os.getpid()}
        killed |= found | {pid for pid, p in living.items() if p.parent in found}
        if not killed & living.keys():
            return
        for pid in killed & living.keys():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    postgres_guard._await_end()
    for data in Path(sys.argv[1]).glob("*/data"):
        postgres_guard.free_memory(data)
    end(Path(sys.argv[1]))
    shutil.rmtree(sys.argv[1], ignore_errors=True)
