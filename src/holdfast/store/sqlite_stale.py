"""Finding and ending a stopped process that holds SQLite's write lock.

A process stopped inside a write transaction (SIGSTOP, a debugger, a frozen container) blocks every
writer, for as long as it is stopped. Only a registered worker of this host whose lease has run out
is killed; it is superseded anyway. Anything else is left alone, and the wait ends in an error.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable

from holdfast.store import host
from holdfast.types import WorkerRow

_WRITE_LOCK_BYTE = 120
"""Where in the -shm file SQLite's WAL write lock is."""

_PROC_LOCKS = "/proc/locks"

# Asked from a process of its own: to open and close the file here would drop the locks that
# SQLite itself holds on it in this process.
_ASK = """
import fcntl, struct, sys
layout, order = ("qqihh", (2, 3)) if sys.platform == "darwin" else ("hhqqi4x", (4, 0))
start = int(sys.argv[2])
if sys.platform == "darwin":
    asked = struct.pack(layout, start, 1, 0, fcntl.F_WRLCK, 0)
else:
    asked = struct.pack(layout, fcntl.F_WRLCK, 0, start, 1, 0)
with open(sys.argv[1], "r+b") as file:
    found = struct.unpack(layout, fcntl.fcntl(file, fcntl.F_GETLK, asked))
print(found[order[0]] if found[order[1]] != fcntl.F_UNLCK else 0)
"""


def break_stale_lock(path: str, workers: Iterable[WorkerRow]) -> WorkerRow | None:
    overdue = [
        worker
        for worker in workers
        if worker.lease_left_seconds <= 0
        and worker.host == host.host_id()
        and worker.pid != os.getpid()
    ]
    if not overdue:
        return None
    if sys.platform == "win32":
        return None
    pid = _holder(f"{path}-shm")
    for worker in overdue:
        if worker.pid == pid and host.process_started(pid) == worker.process_started:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return None
            return worker
    return None


def _holder(shm: str) -> int:
    """The process that holds the write lock; 0: nobody, or it cannot be told."""
    try:
        with open(_PROC_LOCKS, encoding="ascii") as file:
            return find_holder(file.read(), os.stat(shm).st_ino)
    except OSError:
        pass
    if os.name != "posix":
        return 0
    asked = subprocess.run(
        [sys.executable, "-I", "-c", _ASK, shm, str(_WRITE_LOCK_BYTE)],
        capture_output=True,
        text=True,
        check=False,
    )
    return int(asked.stdout) if asked.returncode == 0 else 0


def find_holder(locks: str, inode: int) -> int:
    """The holder by the text of /proc/locks, whose lines read like
    `7: POSIX ADVISORY WRITE 4711 fe:00:123 120 120`; a waiter's line has an arrow in it."""
    for line in locks.splitlines():
        fields = line.split()
        if len(fields) != 8 or fields[1] != "POSIX" or fields[3] != "WRITE":
            continue
        first, last = fields[6], fields[7]
        if int(fields[5].rpartition(":")[2]) != inode or int(first) > _WRITE_LOCK_BYTE:
            continue
        if last == "EOF" or int(last) >= _WRITE_LOCK_BYTE:
            return int(fields[4])
    return 0
