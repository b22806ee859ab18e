"""Patroni with etcd, on PostgreSQL's own programs: a cluster that promotes by itself.

Patroni is installed into an environment of its own. As root all of it runs as nobody, like the
servers of holdfast.testing.postgres; the interpreter must be one that nobody may run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import postgres_guard
from holdfast.testing.ports import free_port
from holdfast.testing.postgres_install import Install, temporary
from tests.crash.postgres import patroni_guard
from tests.helpers.processes import ROOT, eventually

SECONDS_MAX = 150.0
PACKAGES = ("patroni[etcd3]>=4,<5", "psycopg2-binary")
PASSWORD = "holdfast"  # nobody else gets to these servers: they live as long as the test
NO_ETCD = "This test needs etcd, the program: on Debian, `apt-get install etcd-server`."
NO_PYTHON = (
    "Patroni must not run as root, and the user nobody may run neither {} nor /usr/bin/python3."
)

MEMBER = """\
  initdb:
  - encoding: UTF8
  - no-locale
scope: holdfast
name: {name}
restapi: {{listen: "127.0.0.1:{rest}", connect_address: "127.0.0.1:{rest}"}}
etcd3: {{host: "127.0.0.1:{etcd}"}}
postgresql:
  listen: 127.0.0.1:{port}
  connect_address: 127.0.0.1:{port}
  data_dir: {folder}/data
  bin_dir: {programs}
  pgpass: {folder}/pgpass
  authentication:
    superuser: {{username: postgres, password: {password}}}
    replication: {{username: replicator, password: {password}}}
  pg_hba:
  - host all all 127.0.0.1/32 scram-sha-256
  - host replication all 127.0.0.1/32 scram-sha-256
  parameters:
    unix_socket_directories: ""
    dynamic_shared_memory_type: mmap
"""


def documented() -> str:
    """What docs/postgres.md tells users to set: a `bootstrap:` that more can be added to."""
    found = re.search(
        r"```yaml\n(bootstrap:\n.*?)```", (ROOT / "docs/postgres.md").read_text(), re.S
    )
    assert found is not None, "docs/postgres.md shows no settings for Patroni any more"
    return found[1]


class Member:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self.name = cluster, name
        self._folder = cluster.folder / name
        self._folder.mkdir(mode=0o700)
        cluster.install.own(self._folder)
        self.port, self._rest = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        config = self._folder / "patroni.yml"
        values = {"rest": self._rest, "port": self.port, "etcd": cluster.etcd_port}
        config.write_text(
            documented()
            + MEMBER.format(
                name=name,
                folder=self._folder,
                programs=cluster.install._root / "bin",
                password=PASSWORD,
                **values,
            )
        )
        cluster.install.own(config)

    def start(self) -> None:
        command = [self._cluster.python, "-m", "patroni", self._folder / "patroni.yml"]
        self._process = self._cluster.begin(self._folder / "log", *command)

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def kill(self) -> None:
        """Patroni and the server with all its processes, as if the power was cut."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        data = self._folder / "data"
        master = int((data / "postmaster.pid").read_text().split()[0])
        os.kill(master, signal.SIGSTOP)  # it starts nobody, and hears of no death
        for pid, process in postgres_guard.processes().items():
            if process.parent == master:
                os.kill(pid, signal.SIGKILL)
        os.kill(master, signal.SIGKILL)
        gone = f"process {master} is dead"
        eventually(lambda: master not in postgres_guard.processes(), gone, SECONDS_MAX)
        postgres_guard.free_memory(data)
        (data / "postmaster.pid").unlink()

    def sees(self) -> dict[str, str]:
        """The members and their roles, of those that run or stream."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._rest}/cluster", timeout=5) as got:
                members: list[dict[str, Any]] = json.load(got)["members"]
        except (OSError, KeyError, ValueError):
            return {}
        well = ("running", "streaming")
        return {found["name"]: found["role"] for found in members if found["state"] in well}


class Cluster:
    def __init__(self, folder: Path, processes: list[subprocess.Popen[bytes]]) -> None:
        etcd = shutil.which("etcd")
        if etcd is None:
            pytest.fail(NO_ETCD)
        self._processes = processes
        self.folder = folder
        self.install = Install(folder)
        self.python = self._environment()
        self.etcd_port, peers = free_port(), free_port()
        own, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{peers}"
        self.begin(
            folder / "etcd.log",
            *(etcd, "--data-dir", folder / "etcd"),
            *("--listen-client-urls", own, "--advertise-client-urls", own),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
        )
        self.members = [Member(self, f"pg{number}") for number in (1, 2, 3)]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        return f"postgresql://postgres:{PASSWORD}@{hosts}/postgres"

    def start(self) -> None:
        for member in self.members:
            member.start()
        self.until_roles(self.members[0], ["leader", "replica", "sync_standby"])

    def until_roles(self, witness: Member, roles: list[str]) -> dict[str, Member]:
        """Who has which role, as one member sees it, once these are taken."""

        def taken() -> dict[str, str]:
            seen = witness.sees()
            return seen if sorted(seen.values()) == roles else {}

        try:
            seen = eventually(taken, f"the roles {roles} are taken", SECONDS_MAX)
        except AssertionError:
            for member in self.members:
                print(f"--- {member.name}:", member.log[-3000:], sep="\n")
            raise
        by_name = {member.name: member for member in self.members}
        return {role: by_name[name] for name, role in seen.items()}

    def begin(self, log: Path, *command: object) -> subprocess.Popen[bytes]:
        """A program as the user that PostgreSQL's programs run as."""
        home = {"HOME": str(self.folder), "LC_ALL": "C", "PYTHONUNBUFFERED": "1"}
        with open(log, "ab") as output:
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], **home},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                **self._user,
            )
        self._processes.append(process)
        return process

    @property
    def _user(self) -> dict[str, Any]:
        if self.install._user is None:
            return {}
        return {"user": self.install._user, "group": self.install._group, "extra_groups": ()}

    def _environment(self) -> Path:
        """Its own, and the interpreter in it."""
        made = self.folder / "patroni"
        python = made / "bin" / "python"
        subprocess.run([self._interpreter(), "-m", "venv", "--without-pip", made], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", *PACKAGES], check=True)
        return python

    def _interpreter(self) -> str:
        for found in (os.path.realpath(sys.executable), "/usr/bin/python3"):
            with contextlib.suppress(OSError):
                subprocess.run([found, "-V"], check=True, capture_output=True, **self._user)
                return found
        pytest.fail(NO_PYTHON.format(os.path.realpath(sys.executable)))


@contextlib.contextmanager
def patroni_cluster() -> Iterator[Cluster]:
    """Three members; nothing of it is left afterwards, even if this process is killed."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-patroni-", dir=temporary()))
    guard = subprocess.Popen(
        [sys.executable, patroni_guard.__file__, str(folder)],
        cwd="/",
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    processes: list[subprocess.Popen[bytes]] = []
    try:
        cluster = Cluster(folder, processes)
        cluster.start()
        yield cluster
    finally:
        guard.communicate(b"end\n", SECONDS_MAX)
        for process in processes:
            process.wait(SECONDS_MAX)
