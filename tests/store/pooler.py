"""PgBouncer in front of a server, in transaction mode: each statement may go to another session."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast.testing.ports import free_port
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.postgres_install import temporary
from tests.helpers.processes import eventually

MISSING = "This test needs PgBouncer: on Debian, `apt-get install pgbouncer`."
SESSIONS = 2  # fewer than there are clients, so that they do share them

SETTINGS = """\
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = {sessions}
max_client_conn = 200
{more}
"""


@contextlib.contextmanager
def pgbouncer(server: PostgresServer, more: str = "") -> Iterator[int]:
    """The port that it listens on; it ends with this process, however that ends."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.fail(MISSING)
    command = ["setpriv", "--pdeathsig", "KILL"]
    with tempfile.TemporaryDirectory(prefix="holdfast-pooler-", dir=temporary()) as folder:
        port = free_port()
        users, settings = Path(folder, "users"), Path(folder, "settings")
        users.write_text(f'"postgres" "{urlsplit(server.dsn).password}"\n')
        values = {"port": port, "folder": folder, "sessions": SESSIONS, "more": more}
        settings.write_text(SETTINGS.format(server=server.port, **values))
        if os.geteuid() == 0:  # which it refuses
            nobody = pwd.getpwnam("nobody")
            for path in (folder, users, settings):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
            ids = ["--reuid", str(nobody.pw_uid), "--regid", str(nobody.pw_gid)]
            command += [*ids, "--clear-groups"]
        with open(Path(folder, "log"), "wb") as log:
            process = subprocess.Popen([*command, program, str(settings)], stdout=log, stderr=log)
        try:
            eventually(lambda: listens(port), "PgBouncer listens")
            yield port
        finally:
            process.kill()
            process.wait()


def listens(port: int) -> bool:
    with socket.socket() as knocking:
        return knocking.connect_ex(("127.0.0.1", port)) == 0
