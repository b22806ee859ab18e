"""What tells this machine, this boot and this process from others."""

from __future__ import annotations

import functools
import os
import re
import socket
import subprocess
import sys

from holdfast.errors import Unsupported

_NETWORK_FILE_SYSTEMS = frozenset(
    "9p afs afpfs ceph cifs coda fuse.ceph fuse.glusterfs fuse.gcsfuse fuse.s3fs fuse.sshfs "
    "glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs pvfs2 smb2 smb3 smbfs webdav".split()
)


@functools.cache
def boot_id() -> str:
    """Changes with each boot, so that readings of the monotonic clock can be compared or not."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        pass
    if sys.platform == "darwin":
        said = subprocess.run(
            ["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False
        )
        if said.stdout.strip():
            return said.stdout.strip()
    # Computed from the wall clock it could change under a living worker. Without it a lease of an
    # earlier boot may seem to last; the liveness lock tells the truth then.
    return "unknown"


@functools.cache
def host_id() -> str:
    """Processes with the same host id see each other's process ids."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return " ".join(part for part in (socket.gethostname(), boot_id(), space) if part)


def this_process() -> tuple[str, int, str]:
    """What identifies this process: its host, its id and its start."""
    return host_id(), os.getpid(), process_started(os.getpid())


def process_started(pid: int) -> str:
    """When a living process started, in some unit; empty if there is none of this pid."""
    if os.path.isdir("/proc/self"):
        return _started_linux(pid)
    if os.name == "posix":
        shown = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        return shown.stdout.strip()
    return "unknown"


def _started_linux(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            # The name before the last parenthesis may hold anything; fields are counted after it.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    state, started = fields[0], fields[19]
    return "" if state in "ZX" else started


def refuse_network_file_system(path: str) -> None:
    """Raises Unsupported where locks and shared memory cannot be trusted; Linux only."""
    kind = file_system_of(path, _mounts())
    if kind in _NETWORK_FILE_SYSTEMS:
        raise Unsupported(
            f"{path} is on a network file system ({kind}), where SQLite's locks cannot be trusted. "
            "Use a local disk, or PostgreSQL to share runs between machines."
        )


def _mounts() -> str:
    try:
        with open("/proc/mounts", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def file_system_of(path: str, mounts: str) -> str:
    """The type of the file system that a path is on, by the text of /proc/mounts; or empty."""
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        # Blanks in a path are written as \040.
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[1])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # A later mount over the same point hides an earlier one.
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind
